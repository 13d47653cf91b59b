/* convreg.hifloat8, a scalar type that NumPy knows: what the files of the compiled module share.
 *
 *   module.c   tables, initialisation
 *   scalar.c   the Python type of one number
 *   arrays.c   what NumPy needs of an element: copy, read, assign, compare, dot product; registration of the dtype
 *   casts.c    casts from and to NumPy's own types and those of other packages
 *   ufuncs.c   loops of NumPy's functions
 *
 * Values and rounding are those of numbers/numbers.h and numbers/rounding.h.
 */
#ifndef CONVREG_HIFLOAT8_TYPE_H
#define CONVREG_HIFLOAT8_TYPE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_7_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL convreg_hifloat8_arrays
#define PY_UFUNC_UNIQUE_SYMBOL convreg_hifloat8_ufuncs
#ifndef IMPORTS_NUMPY /* module.c imports the tables of functions; the other files use them */
#define NO_IMPORT_ARRAY
#define NO_IMPORT_UFUNC
#endif
#include <numpy/arrayobject.h>
#include <numpy/ufuncobject.h>

#include "numbers/numbers.h"
#include "numbers/rounding.h"

enum {
    HIFLOAT8_NAN = 0x80,
    HIFLOAT8_INFINITY = 0x6f, /* the code without its sign */
    MAGNITUDES = 128,
};

/* NumPy takes the number of a scalar of a registered type from the place right behind the object's head. */
typedef struct {
    PyObject_HEAD
    uint8_t code;
} hifloat8_object;

extern PyTypeObject *hifloat8_type;
extern int hifloat8_number; /* the dtype's, which NumPy gives */

extern float hifloat8_values[256];           /* the number of every code */
extern uint8_t hifloat8_ranked[MAGNITUDES];  /* the codes without sign, in the order of their numbers */
extern uint8_t hifloat8_ranks[MAGNITUDES];   /* the place of each of them in that order */

/* Half away from zero, in one rounding: the float in between keeps what decides. */
static inline uint8_t hifloat8_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return encode_hifloat8(bits_float((uint32_t)narrow_one(bits, 0, TO_ODD, 0)));
}

static inline int hifloat8_is_nan(uint8_t code)
{
    return code == HIFLOAT8_NAN;
}

static inline int hifloat8_is_infinite(uint8_t code)
{
    return (code & 0x7fu) == HIFLOAT8_INFINITY;
}

/* The sum of products, exact in each product, in float64 in the order of the elements, and rounded once. Strides in bytes. */
uint8_t hifloat8_dot(const void *first, npy_intp first_stride, const void *second, npy_intp second_stride, npy_intp count);

/* Each of the following returns 0, or -1 with an exception set. */

/* The code of a Python number, the text of one, or a NumPy scalar. */
int hifloat8_from_object(PyObject *object, uint8_t *code);

int create_hifloat8_type(void);
int register_hifloat8_dtype(void);
int register_hifloat8_casts(void);
int register_hifloat8_ufuncs(void);

/* connect(scalar type): casts from and to a type that another package registered. */
PyObject *connect_hifloat8(PyObject *module, PyObject *type);

#endif
