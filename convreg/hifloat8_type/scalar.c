/* The Python type of one HiFloat8 number, a subclass of numpy.generic.
 *
 * numpy.generic does arithmetic through NumPy's functions, whose loops are in ufuncs.c, so that numbers follow the same
 * rules of promotion as arrays do.
 */
#include "hifloat8.h"

PyTypeObject *hifloat8_type;

static double value_of(PyObject *self)
{
    return hifloat8_values[((hifloat8_object *)self)->code];
}

static PyObject *float_of(PyObject *self)
{
    return PyFloat_FromDouble(value_of(self));
}

static PyObject *scalar_of(uint8_t code)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(hifloat8_type, Py_tp_alloc);
    PyObject *self = allocate(hifloat8_type, 0);
    if (self != NULL)
        ((hifloat8_object *)self)->code = code;
    return self;
}

/* An array, or a scalar of another dtype, as an array of hifloat8. */
static PyObject *cast_array(PyObject *object)
{
    PyArray_Descr *descr = PyArray_DescrFromType(hifloat8_number);
    return descr == NULL ? NULL : PyArray_FromAny(object, descr, 0, 0, NPY_ARRAY_FORCECAST, NULL);
}

int hifloat8_from_object(PyObject *object, uint8_t *code)
{
    PyObject *number;
    if (PyObject_TypeCheck(object, hifloat8_type)) {
        *code = ((hifloat8_object *)object)->code;
        return 0;
    }
    if (PyComplex_Check(object) || PyArray_IsScalar(object, ComplexFloating)) {
        PyErr_SetString(PyExc_TypeError, "hifloat8 needs a real number or the text of one, and got a complex number");
        return -1;
    }
    /* float() would round a long double twice. An array of objects may hold itself, which float() knows. */
    if (PyArray_IsScalar(object, LongDouble) ||
        (PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) == 0 &&
         PyArray_TYPE((PyArrayObject *)object) != NPY_OBJECT)) {
        PyObject *array = cast_array(object);
        if (array == NULL)
            return -1;
        *code = *(uint8_t *)PyArray_DATA((PyArrayObject *)array);
        Py_DECREF(array);
        return 0;
    }
    number = PyNumber_Float(object);
    if (number == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyObject *name = PyObject_GetAttrString((PyObject *)Py_TYPE(object), "__name__");
            if (name == NULL)
                return -1;
            PyErr_Format(PyExc_TypeError, "hifloat8 needs a real number or the text of one, and got %S", name);
            Py_DECREF(name);
        }
        return -1;
    }
    *code = hifloat8_of(PyFloat_AsDouble(number));
    Py_DECREF(number);
    return 0;
}

static PyObject *new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *object = NULL;
    uint8_t code = 0;
    (void)type; /* it has no subclasses */
    if (keywords != NULL && PyDict_Size(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "hifloat8 takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_UnpackTuple(arguments, "hifloat8", 0, 1, &object))
        return NULL;
    if (object != NULL && PyArray_Check(object) && PyArray_NDIM((PyArrayObject *)object) > 0)
        return cast_array(object);
    if (object != NULL && hifloat8_from_object(object, &code) < 0)
        return NULL;
    return scalar_of(code);
}

static PyObject *text(PyObject *self)
{
    PyObject *number = float_of(self), *result;
    if (number == NULL)
        return NULL;
    result = PyObject_Repr(number);
    Py_DECREF(number);
    return result;
}

static Py_hash_t hash(PyObject *self)
{
    PyObject *number;
    Py_hash_t result;
    if (hifloat8_is_nan(((hifloat8_object *)self)->code)) /* NaN equals nothing: the object's own place will do */
        return ((hashfunc)PyType_GetSlot(&PyBaseObject_Type, Py_tp_hash))(self);
    number = float_of(self);
    if (number == NULL)
        return -1;
    result = PyObject_Hash(number);
    Py_DECREF(number);
    return result;
}

/* With Python's own numbers by value, exactly; with everything else as NumPy compares arrays. */
static PyObject *compare(PyObject *self, PyObject *other, int operation)
{
    PyObject *number, *exact, *result;
    if (!PyObject_TypeCheck(other, hifloat8_type) && !PyFloat_CheckExact(other) && !PyLong_CheckExact(other)) {
        result = ((richcmpfunc)PyType_GetSlot(&PyGenericArrType_Type, Py_tp_richcompare))(self, other, operation);
        if (result == NULL && (operation == Py_EQ || operation == Py_NE) && PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear(); /* what NumPy cannot compare with a number is unequal */
            Py_RETURN_NOTIMPLEMENTED;
        }
        return result;
    }
    number = float_of(self);
    if (number == NULL)
        return NULL;
    exact = PyObject_TypeCheck(other, hifloat8_type) ? float_of(other) : (Py_INCREF(other), other);
    result = exact == NULL ? NULL : PyObject_RichCompare(number, exact, operation);
    Py_DECREF(number);
    Py_XDECREF(exact);
    if (result != NULL) {
        PyObject *truth = PyObject_CallFunctionObjArgs((PyObject *)&PyBoolArrType_Type, result, NULL);
        Py_DECREF(result);
        result = truth;
    }
    return result;
}

/* A method of float, called for the number. */
static PyObject *of_float(PyObject *self, const char *method, PyObject *argument)
{
    PyObject *number = float_of(self), *name = PyUnicode_FromString(method), *result = NULL;
    if (number != NULL && name != NULL)
        result = PyObject_CallMethodObjArgs(number, name, argument, NULL);
    Py_XDECREF(number);
    Py_XDECREF(name);
    return result;
}

static PyObject *format(PyObject *self, PyObject *specification)
{
    return of_float(self, "__format__", specification);
}

static PyObject *truncated(PyObject *self, PyObject *none)
{
    (void)none;
    return of_float(self, "__trunc__", NULL);
}

static PyObject *is_integer(PyObject *self, PyObject *none)
{
    (void)none;
    return of_float(self, "is_integer", NULL);
}

static PyObject *as_integer_ratio(PyObject *self, PyObject *none)
{
    (void)none;
    return of_float(self, "as_integer_ratio", NULL);
}

static PyObject *rounded(PyObject *self, PyObject *arguments)
{
    PyObject *digits = NULL, *result;
    uint8_t code;
    if (!PyArg_UnpackTuple(arguments, "__round__", 0, 1, &digits))
        return NULL;
    if (digits == Py_None)
        digits = NULL;
    result = of_float(self, "__round__", digits);
    if (digits != NULL && result != NULL) {
        int failed = hifloat8_from_object(result, &code);
        Py_DECREF(result);
        result = failed ? NULL : scalar_of(code);
    }
    return result;
}

static PyObject *as_float(PyObject *self)
{
    return float_of(self);
}

static PyObject *as_integer(PyObject *self)
{
    return PyLong_FromDouble(value_of(self));
}

static int truth(PyObject *self)
{
    return ((hifloat8_object *)self)->code != 0;
}

static PyMethodDef methods[] = {
    {"__format__", format, METH_O, "Format the number as a float."},
    {"__round__", rounded, METH_VARARGS, "The nearest integer; or with a number of digits a hifloat8."},
    {"__trunc__", truncated, METH_NOARGS, "The integer part."},
    {"is_integer", is_integer, METH_NOARGS, "Whether the number is an integer."},
    {"as_integer_ratio", as_integer_ratio, METH_NOARGS, "Two integers whose quotient is the number."},
    {NULL, NULL, 0, NULL},
};

static const char documentation[] =
    "hifloat8(number=0, /)\n--\n\n"
    "A number of HiFloat8, Ascend's 8-bit format (arXiv 2409.16626).\n\n"
    "It is a scalar type of NumPy: ``np.dtype(convreg.hifloat8)`` is the dtype of arrays.\n\n"
    "Parameters\n----------\n"
    "number : real number, str, NumPy scalar or array\n"
    "    It is rounded once, half away from zero: from a float64, or from a wider NumPy float. An array gives an array.\n\n"
    "Raises\n------\n"
    "TypeError\n    If `number` is nothing of this kind; complex numbers are not.\n"
    "ValueError\n    If a text is not a number's.\n"
    "OverflowError\n    If an integer is larger than any float64.\n\n"
    "Notes\n-----\n"
    "There is no negative zero, one NaN (0x80), and infinities (0x6f, 0xef). The largest number is 32768. Results of\n"
    "NumPy's functions are the exact ones, rounded once.\n\n"
    "Examples\n--------\n"
    ">>> convreg.hifloat8(1.0625)\n1.125\n"
    ">>> np.array([1.5, 40960], convreg.hifloat8)\narray([1.5, inf], dtype=hifloat8)\n";

static PyType_Slot slots[] = {
    {Py_tp_doc, (void *)documentation},
    {Py_tp_new, new},
    {Py_tp_repr, text},
    {Py_tp_str, text},
    {Py_tp_hash, hash},
    {Py_tp_richcompare, compare},
    {Py_tp_methods, methods},
    {Py_nb_float, as_float},
    {Py_nb_int, as_integer},
    {Py_nb_bool, truth},
    {0, NULL},
};

static PyType_Spec specification = {
    .name = "convreg.hifloat8",
    .basicsize = sizeof(hifloat8_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};

int create_hifloat8_type(void)
{
    PyObject *bases = PyTuple_Pack(1, (PyObject *)&PyGenericArrType_Type);
    if (bases == NULL)
        return -1;
    hifloat8_type = (PyTypeObject *)PyType_FromSpecWithBases(&specification, bases);
    Py_DECREF(bases);
    return hifloat8_type == NULL ? -1 : 0;
}
