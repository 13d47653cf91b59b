/* The module convreg._hifloat8: tables, and initialisation.
 *
 * NumPy keeps a registered dtype for the life of the process. So does this module: it has one phase of initialisation,
 * whose result Python hands out again when the module is imported anew.
 */
#define IMPORTS_NUMPY
#include "hifloat8.h"

float hifloat8_values[256];
uint8_t hifloat8_ranked[MAGNITUDES];
uint8_t hifloat8_ranks[MAGNITUDES];

static void fill_tables(void)
{
    for (int code = 0; code < 256; code++)
        hifloat8_values[code] = decode_hifloat8((uint8_t)code);
    for (int code = 0; code < MAGNITUDES; code++) {
        int rank = 0;
        for (int other = 0; other < MAGNITUDES; other++)
            rank += hifloat8_values[other] < hifloat8_values[code];
        hifloat8_ranked[rank] = (uint8_t)code;
        hifloat8_ranks[code] = (uint8_t)rank;
    }
}

static PyMethodDef functions[] = {
    {"connect", connect_hifloat8, METH_O,
     "connect(type)\n--\n\nRegister casts between hifloat8 and a scalar type that another package registered with NumPy.\n\n"
     "They go through float32, which represents every number of both. A second call for a type does nothing.\n\n"
     "Raises\n------\nTypeError\n    If `type` is not such a type, or float32 does not represent its numbers.\n"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "convreg._hifloat8",
    .m_doc = "HiFloat8 as a NumPy scalar type; convreg.formats says what it is.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__hifloat8(void)
{
    PyObject *module;
    if (PyArray_ImportNumPyAPI() < 0 || PyUFunc_ImportUFuncAPI() < 0)
        return NULL;
    fill_tables();
    if (create_hifloat8_type() < 0 || register_hifloat8_dtype() < 0 || register_hifloat8_casts() < 0 ||
        register_hifloat8_ufuncs() < 0)
        return NULL;
    module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED); /* everything static is written before this line */
#endif
    Py_INCREF((PyObject *)hifloat8_type);
    if (PyModule_AddObject(module, "hifloat8", (PyObject *)hifloat8_type) < 0) {
        Py_DECREF((PyObject *)hifloat8_type);
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
