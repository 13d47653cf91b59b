/* What NumPy needs of the elements of an array of hifloat8, and the registration of the dtype.
 *
 * An element is one byte: it has no alignment to miss and no order of bytes, so requests to swap copy.
 */
#include "hifloat8.h"

int hifloat8_number;

static PyObject *get(void *data, void *array)
{
    (void)array;
    return PyFloat_FromDouble(hifloat8_values[*(uint8_t *)data]);
}

static int set(PyObject *object, void *data, void *array)
{
    (void)array;
    return hifloat8_from_object(object, data);
}

static void copy_one(void *to, void *from, int swap, void *array)
{
    (void)swap, (void)array;
    if (from != NULL) /* else: swap in place */
        *(uint8_t *)to = *(uint8_t *)from;
}

static void copy_many(void *to, npy_intp to_stride, void *from, npy_intp from_stride, npy_intp count, int swap,
                      void *array)
{
    uint8_t *place = to, *source = from;
    (void)swap, (void)array;
    if (from == NULL)
        return;
    if (to_stride == 1 && from_stride == 1) {
        memmove(to, from, (size_t)count);
        return;
    }
    for (npy_intp i = 0; i < count; i++, place += to_stride, source += from_stride)
        *place = *source;
}

/* NaN comes last, as in NumPy's own sorts. */
static int compare(const void *first, const void *second, void *array)
{
    uint8_t a = *(const uint8_t *)first, b = *(const uint8_t *)second;
    float x = hifloat8_values[a], y = hifloat8_values[b];
    (void)array;
    if (hifloat8_is_nan(a) || hifloat8_is_nan(b))
        return hifloat8_is_nan(a) - hifloat8_is_nan(b);
    return (x > y) - (x < y);
}

/* The first of the largest numbers times `sign`; the first NaN if there is one. */
static npy_intp first_extreme(const uint8_t *codes, npy_intp count, float sign)
{
    npy_intp best = 0;
    for (npy_intp i = 0; i < count; i++) {
        if (hifloat8_is_nan(codes[i]))
            return i;
        if (sign * hifloat8_values[codes[i]] > sign * hifloat8_values[codes[best]])
            best = i;
    }
    return best;
}

static int largest(void *data, npy_intp count, npy_intp *place, void *array)
{
    (void)array;
    *place = first_extreme(data, count, 1);
    return 0;
}

static int smallest(void *data, npy_intp count, npy_intp *place, void *array)
{
    (void)array;
    *place = first_extreme(data, count, -1);
    return 0;
}

uint8_t hifloat8_dot(const void *first, npy_intp first_stride, const void *second, npy_intp second_stride, npy_intp count)
{
    const uint8_t *a = first, *b = second;
    double sum = 0;
    for (npy_intp i = 0; i < count; i++, a += first_stride, b += second_stride)
        sum += (double)hifloat8_values[*a] * (double)hifloat8_values[*b];
    return hifloat8_of(sum);
}

static void dot(void *first, npy_intp first_stride, void *second, npy_intp second_stride, void *result, npy_intp count,
                void *array)
{
    (void)array;
    *(uint8_t *)result = hifloat8_dot(first, first_stride, second, second_stride, count);
}

static npy_bool nonzero(void *data, void *array)
{
    (void)array;
    return *(uint8_t *)data != 0;
}

/* numpy.arange: an even sequence from the first two elements; every element is rounded once. */
static int fill(void *data, npy_intp count, void *array)
{
    uint8_t *codes = data;
    double start = hifloat8_values[codes[0]], step = hifloat8_values[codes[1]] - start;
    (void)array;
    for (npy_intp i = 2; i < count; i++)
        codes[i] = hifloat8_of(start + (double)i * step);
    return 0;
}

static int fill_with(void *data, npy_intp count, void *value, void *array)
{
    (void)array;
    memset(data, *(uint8_t *)value, (size_t)count);
    return 0;
}

int register_hifloat8_dtype(void)
{
    static PyArray_ArrFuncs functions;
    static PyArray_DescrProto description; /* NumPy 1 makes this the dtype itself, NumPy 2 copies it */
    PyArray_InitArrFuncs(&functions);
    functions.getitem = get;
    functions.setitem = set;
    functions.copyswap = copy_one;
    functions.copyswapn = copy_many;
    functions.compare = compare;
    functions.argmax = largest;
    functions.argmin = smallest;
    functions.dotfunc = dot;
    functions.nonzero = nonzero;
    functions.fill = fill;
    functions.fillwithscalar = fill_with;
    Py_SET_REFCNT((PyObject *)&description, 1);
    Py_SET_TYPE((PyObject *)&description, &PyArrayDescr_Type);
    description.typeobj = hifloat8_type;
    description.kind = 'V'; /* as ml_dtypes' types: 'f' would promise NumPy's own floats, and files that say <f1 */
    description.type = 'y'; /* a letter that no other type has */
    description.byteorder = NPY_IGNORE;
    description.elsize = 1;
    description.alignment = 1;
    description.f = &functions;
    description.hash = -1;
    hifloat8_number = PyArray_RegisterDataType(&description);
    return hifloat8_number < 0 ? -1 : 0;
}
