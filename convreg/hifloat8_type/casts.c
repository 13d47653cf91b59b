/* Casts from and to NumPy's own types, and those of packages that register types as this one does.
 *
 * A cast to hifloat8 rounds once, half away from zero; overflow becomes infinity. NumPy hands over aligned, contiguous
 * elements.
 */
#include "hifloat8.h"

#include <math.h>

/* A double that rounds as the number does: inexact ones are odd in their last bit. What has no double, and would raise
 * a flag, is far beyond HiFloat8. */
static double odd_double(npy_longdouble number)
{
    npy_longdouble magnitude = fabsl(number);
    double near;
    uint64_t bits;
    if (number != number)
        return NAN;
    if (magnitude > 1e9 || magnitude < 1e-9)
        return magnitude < 1 ? 0 : number < 0 ? -1e9 : 1e9;
    near = (double)number;
    if ((npy_longdouble)near == number)
        return near;
    memcpy(&bits, &near, sizeof bits);
    if (fabsl(near) > magnitude)
        bits -= 1; /* toward zero */
    bits |= 1;
    memcpy(&near, &bits, sizeof near);
    return near;
}

#define ENCODE_REAL(number) hifloat8_of((double)(number)) /* integers that a double rounds are infinite here */
#define ENCODE_HALF(number) encode_hifloat8(decode_float16(number))
#define ENCODE_FLOAT(number) encode_hifloat8(number)
#define ENCODE_LONG_DOUBLE(number) hifloat8_of(odd_double(number))
#define DECODE_REAL(code, type, lowest, highest) ((type)hifloat8_values[code])
#define DECODE_HALF(code, type, lowest, highest) encode_float16(hifloat8_values[code])
#define DECODE_BOOL(code, type, lowest, highest) ((type)((code) != 0)) /* NaN is true, as everywhere in NumPy */
#define DECODE_INTEGER(code, type, lowest, highest)                                                                    \
    (integers[code] == INT32_MAX || (integers[code] > 0 && (uint64_t)integers[code] > (uint64_t)(highest)) ? (highest) \
     : integers[code] == INT32_MIN || integers[code] < (int64_t)(lowest)                                 ? (lowest)    \
                                                                                          : (type)integers[code])

/* The integer part of every number, with INT32_MAX and INT32_MIN for the infinities, and 0 for NaN. Compilers that
 * convert floats beyond an integer's range ahead of a test raise flags, of which NumPy makes warnings. */
static int32_t integers[256];

static void fill_integers(void)
{
    for (int code = 0; code < 256; code++)
        integers[code] = hifloat8_is_nan((uint8_t)code)        ? 0
                         : !hifloat8_is_infinite((uint8_t)code) ? (int32_t)hifloat8_values[code]
                         : code < HIFLOAT8_NAN                  ? INT32_MAX
                                                                : INT32_MIN;
}

/* CAST(NumPy's name, C type of the stored element or of its parts, how many parts, encoder, decoder, limits): a complex
 * number has two parts, of which casts to hifloat8 drop the second, as ml_dtypes does. Integers are taken toward zero;
 * what is beyond the type's limits, as infinities are, becomes the limit. */
#define CASTS(CAST)                                                                                                    \
    CAST(BOOL, npy_bool, 1, ENCODE_REAL, DECODE_BOOL, 0, 1)                                                            \
    CAST(BYTE, npy_byte, 1, ENCODE_REAL, DECODE_INTEGER, NPY_MIN_BYTE, NPY_MAX_BYTE)                                   \
    CAST(UBYTE, npy_ubyte, 1, ENCODE_REAL, DECODE_INTEGER, 0, NPY_MAX_UBYTE)                                           \
    CAST(SHORT, npy_short, 1, ENCODE_REAL, DECODE_INTEGER, NPY_MIN_SHORT, NPY_MAX_SHORT)                               \
    CAST(USHORT, npy_ushort, 1, ENCODE_REAL, DECODE_INTEGER, 0, NPY_MAX_USHORT)                                        \
    CAST(INT, npy_int, 1, ENCODE_REAL, DECODE_INTEGER, NPY_MIN_INT, NPY_MAX_INT)                                       \
    CAST(UINT, npy_uint, 1, ENCODE_REAL, DECODE_INTEGER, 0, NPY_MAX_UINT)                                              \
    CAST(LONG, npy_long, 1, ENCODE_REAL, DECODE_INTEGER, NPY_MIN_LONG, NPY_MAX_LONG)                                   \
    CAST(ULONG, npy_ulong, 1, ENCODE_REAL, DECODE_INTEGER, 0, NPY_MAX_ULONG)                                           \
    CAST(LONGLONG, npy_longlong, 1, ENCODE_REAL, DECODE_INTEGER, NPY_MIN_LONGLONG, NPY_MAX_LONGLONG)                   \
    CAST(ULONGLONG, npy_ulonglong, 1, ENCODE_REAL, DECODE_INTEGER, 0, NPY_MAX_ULONGLONG)                               \
    CAST(HALF, npy_half, 1, ENCODE_HALF, DECODE_HALF, 0, 0)                                                            \
    CAST(FLOAT, npy_float, 1, ENCODE_FLOAT, DECODE_REAL, 0, 0)                                                         \
    CAST(DOUBLE, npy_double, 1, ENCODE_REAL, DECODE_REAL, 0, 0)                                                        \
    CAST(LONGDOUBLE, npy_longdouble, 1, ENCODE_LONG_DOUBLE, DECODE_REAL, 0, 0)                                         \
    CAST(CFLOAT, npy_float, 2, ENCODE_FLOAT, DECODE_REAL, 0, 0)                                                        \
    CAST(CDOUBLE, npy_double, 2, ENCODE_REAL, DECODE_REAL, 0, 0)                                                       \
    CAST(CLONGDOUBLE, npy_longdouble, 2, ENCODE_LONG_DOUBLE, DECODE_REAL, 0, 0)

#define DEFINE(name, type, parts, ENCODE, DECODE, lowest, highest)                                                     \
    static void from_##name(void *from, void *to, npy_intp count, void *from_array, void *to_array)                    \
    {                                                                                                                  \
        const type *numbers = from;                                                                                    \
        uint8_t *codes = to;                                                                                           \
        (void)from_array, (void)to_array;                                                                              \
        for (npy_intp i = 0; i < count; i++)                                                                           \
            codes[i] = ENCODE(numbers[parts * i]);                                                                     \
    }                                                                                                                  \
    static void to_##name(void *from, void *to, npy_intp count, void *from_array, void *to_array)                      \
    {                                                                                                                  \
        const uint8_t *codes = from;                                                                                   \
        type *numbers = to;                                                                                            \
        (void)from_array, (void)to_array;                                                                              \
        for (npy_intp i = 0; i < count; i++) {                                                                         \
            numbers[parts * i + parts - 1] = 0;                                                                        \
            numbers[parts * i] = DECODE(codes[i], type, lowest, highest);                                              \
        }                                                                                                              \
    }
CASTS(DEFINE)

static const struct {
    int number;
    PyArray_VectorUnaryFunc *from, *to;
} casts[] = {
#define ROW(name, ...) {NPY_##name, from_##name, to_##name},
    CASTS(ROW)
};

/* Types that every number of HiFloat8 fits in, for promotion: those that ml_dtypes names for its 8-bit floats. */
static const int wider[] = {NPY_FLOAT, NPY_DOUBLE, NPY_LONGDOUBLE, NPY_CFLOAT, NPY_CDOUBLE, NPY_CLONGDOUBLE};

/* Types that promote to hifloat8. Without the two of integers, NumPy would refuse `array * 2`: it tries the smallest
 * integer type for an integer of Python. */
static const int narrower[] = {NPY_BOOL, NPY_BYTE, NPY_UBYTE};

/* Types of other packages. A cast function is told no type, so each type gets a pair of functions of its own, from a
 * fixed store. They go through float32, by the casts that the other package registered, and round once because float32 represents
 * the numbers of both. */

enum { CONNECTIONS = 64, BLOCK = 256 };

static struct {
    int number;
    npy_intp size; /* of an element, in bytes */
    PyArray_VectorUnaryFunc *to_float, *from_float;
} connections[CONNECTIONS];
static int connected;

static void from_other(int index, char *from, uint8_t *codes, npy_intp count)
{
    float values[BLOCK];
    for (npy_intp done = 0; done < count; done += BLOCK) {
        npy_intp part = count - done < BLOCK ? count - done : BLOCK;
        connections[index].to_float(from + done * connections[index].size, values, part, NULL, NULL);
        from_FLOAT(values, codes + done, part, NULL, NULL);
    }
}

static void to_other(int index, uint8_t *codes, char *to, npy_intp count)
{
    float values[BLOCK];
    for (npy_intp done = 0; done < count; done += BLOCK) {
        npy_intp part = count - done < BLOCK ? count - done : BLOCK;
        to_FLOAT(codes + done, values, part, NULL, NULL);
        connections[index].from_float(values, to + done * connections[index].size, part, NULL, NULL);
    }
}

#define EIGHT(X, tens) X(tens, 0) X(tens, 1) X(tens, 2) X(tens, 3) X(tens, 4) X(tens, 5) X(tens, 6) X(tens, 7)
#define ALL(X)                                                                                                         \
    EIGHT(X, 0) EIGHT(X, 1) EIGHT(X, 2) EIGHT(X, 3) EIGHT(X, 4) EIGHT(X, 5) EIGHT(X, 6) EIGHT(X, 7)
#define PAIR(eights, ones)                                                                                             \
    static void from_other_##eights##ones(void *from, void *to, npy_intp count, void *from_array, void *to_array)      \
    {                                                                                                                  \
        (void)from_array, (void)to_array;                                                                              \
        from_other(8 * eights + ones, from, to, count);                                                                \
    }                                                                                                                  \
    static void to_other_##eights##ones(void *from, void *to, npy_intp count, void *from_array, void *to_array)        \
    {                                                                                                                  \
        (void)from_array, (void)to_array;                                                                              \
        to_other(8 * eights + ones, from, to, count);                                                                  \
    }
ALL(PAIR)

static const struct {
    PyArray_VectorUnaryFunc *from, *to;
} pairs[CONNECTIONS] = {
#define NAMES(eights, ones) {from_other_##eights##ones, to_other_##eights##ones},
    ALL(NAMES)
};

/* The cast that was registered between a dtype and a type of number `to`, or NULL. */
static PyArray_VectorUnaryFunc *cast_to(const PyArray_Descr *descr, int to)
{
    PyArray_ArrFuncs *functions = PyDataType_GetArrFuncs(descr);
    PyArray_VectorUnaryFunc *cast = NULL;
    if (!PyTypeNum_ISUSERDEF(to))
        return functions->cast[to];
    if (functions->castdict != NULL) {
        PyObject *key = PyLong_FromLong(to), *capsule = key == NULL ? NULL : PyDict_GetItem(functions->castdict, key);
        if (capsule != NULL)
            cast = (PyArray_VectorUnaryFunc *)PyCapsule_GetPointer(capsule, NULL);
        Py_XDECREF(key);
    }
    return cast;
}

/* A borrowed dtype of NumPy's own, which lives as long as the process. */
static PyArray_Descr *lasting(int number)
{
    PyArray_Descr *descr = PyArray_DescrFromType(number);
    Py_XDECREF((PyObject *)descr);
    return descr;
}

int register_hifloat8_casts(void)
{
    PyArray_Descr *ours = lasting(hifloat8_number);
    if (ours == NULL)
        return -1;
    fill_integers();
    for (size_t i = 0; i < sizeof casts / sizeof *casts; i++)
        if (PyArray_RegisterCastFunc(lasting(casts[i].number), hifloat8_number, casts[i].from) < 0 ||
            PyArray_RegisterCastFunc(ours, casts[i].number, casts[i].to) < 0)
            return -1;
    for (size_t i = 0; i < sizeof wider / sizeof *wider; i++)
        if (PyArray_RegisterCanCast(ours, wider[i], NPY_NOSCALAR) < 0)
            return -1;
    for (size_t i = 0; i < sizeof narrower / sizeof *narrower; i++)
        if (PyArray_RegisterCanCast(lasting(narrower[i]), hifloat8_number, NPY_NOSCALAR) < 0)
            return -1;
    return 0;
}

PyObject *connect_hifloat8(PyObject *module, PyObject *type)
{
    PyArray_Descr *ours = lasting(hifloat8_number), *theirs = NULL;
    int number;
    (void)module;
    if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, &PyGenericArrType_Type))
        return PyErr_Format(PyExc_TypeError, "connect needs a scalar type of NumPy, and got %R", type);
    theirs = PyArray_DescrFromTypeObject(type);
    if (theirs == NULL)
        return NULL;
    number = theirs->type_num;
    Py_DECREF((PyObject *)theirs); /* registered ones last */
    if (!PyTypeNum_ISUSERDEF(number) || number == hifloat8_number || connected == CONNECTIONS)
        return PyErr_Format(PyExc_TypeError, "connect needs a type that another package registered with NumPy, one of at "
                            "most %d, and got %R", CONNECTIONS, type);
    for (int i = 0; i < connected; i++)
        if (connections[i].number == number)
            Py_RETURN_NONE;
    connections[connected].number = number;
    connections[connected].size = PyDataType_ELSIZE(theirs);
    connections[connected].to_float = cast_to(theirs, NPY_FLOAT);
    connections[connected].from_float = cast_to(lasting(NPY_FLOAT), number);
    if (connections[connected].to_float == NULL || connections[connected].from_float == NULL ||
        !PyArray_CanCastSafely(number, NPY_FLOAT))
        return PyErr_Format(PyExc_TypeError, "connect needs a type whose numbers float32 represents, with casts to and "
                            "from it, and got %R", type);
    if (PyArray_RegisterCastFunc(theirs, hifloat8_number, pairs[connected].from) < 0 ||
        PyArray_RegisterCastFunc(ours, number, pairs[connected].to) < 0)
        return NULL;
    connected++;
    Py_RETURN_NONE;
}
