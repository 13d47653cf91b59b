/* Loops of NumPy's functions over hifloat8.
 *
 * Results are computed in float64 and rounded once. Sums, products, quotients and the other exact cases are exact there
 * or farther from a tie than float64's error, so every result is the true one, rounded. A finite result that becomes
 * infinite raises the flag of overflow, of which NumPy makes a warning, as it does for its own floats.
 */
#include "hifloat8.h"

#include <fenv.h>
#include <math.h>

static uint8_t rounded(double number)
{
    uint8_t code = hifloat8_of(number);
    if (hifloat8_is_infinite(code) && isfinite(number))
        feraiseexcept(FE_OVERFLOW);
    return code;
}

/* Loops: one for each kind of function, which comes as `data`. */

typedef union {
    double (*of_one)(double);
    double (*of_two)(double, double);
    uint8_t (*code_of_one)(uint8_t);
    uint8_t (*code_of_two)(uint8_t, uint8_t);
    int (*truth_of_one)(uint8_t);
    int (*truth_of_two)(double, double);
} operation;

#define LOOP_OF_ONE(name, type, expression)                                                                            \
    static void name(char **data, const npy_intp *counts, const npy_intp *strides, void *function)                     \
    {                                                                                                                  \
        const operation *apply = function;                                                                             \
        const char *first = data[0];                                                                                   \
        char *result = data[1];                                                                                        \
        for (npy_intp i = 0; i < counts[0]; i++, first += strides[0], result += strides[1]) {                          \
            uint8_t a = *(const uint8_t *)first;                                                                       \
            *(type *)result = (type)(expression);                                                                      \
        }                                                                                                              \
    }

#define LOOP_OF_TWO(name, type, expression)                                                                            \
    static void name(char **data, const npy_intp *counts, const npy_intp *strides, void *function)                     \
    {                                                                                                                  \
        const operation *apply = function;                                                                             \
        const char *first = data[0], *second = data[1];                                                                \
        char *result = data[2];                                                                                        \
        for (npy_intp i = 0; i < counts[0];                                                                            \
             i++, first += strides[0], second += strides[1], result += strides[2]) {                                   \
            uint8_t a = *(const uint8_t *)first, b = *(const uint8_t *)second;                                         \
            *(type *)result = (type)(expression);                                                                      \
        }                                                                                                              \
    }

#define A hifloat8_values[a]
#define B hifloat8_values[b]
LOOP_OF_ONE(loop_of_one, uint8_t, rounded(apply->of_one(A)))
LOOP_OF_ONE(loop_of_one_code, uint8_t, apply->code_of_one(a))
LOOP_OF_ONE(loop_of_one_truth, npy_bool, apply->truth_of_one(a))
LOOP_OF_TWO(loop_of_two, uint8_t, rounded(apply->of_two(A, B)))
LOOP_OF_TWO(loop_of_two_codes, uint8_t, apply->code_of_two(a, b))
LOOP_OF_TWO(loop_of_two_truth, npy_bool, apply->truth_of_two(A, B))

/* The functions that C has not under NumPy's meaning. */

static double add(double a, double b) { return a + b; }
static double subtract(double a, double b) { return a - b; }
static double multiply(double a, double b) { return a * b; }
static double divide(double a, double b) { return a / b; }
static double negative(double a) { return -a; }
static double square(double a) { return a * a; }
static double reciprocal(double a) { return 1 / a; }
static double degrees(double a) { return a * (180 / 3.14159265358979323846); }
static double radians(double a) { return a * (3.14159265358979323846 / 180); }

/* Quotient and remainder as Python has them: the remainder has the divisor's sign. All steps are exact but the last
 * division, because the numbers have at most 38 binades and 4 bits. */
static double remainder_of(double a, double b)
{
    double rest = fmod(a, b);
    return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

static double floor_divide(double a, double b)
{
    double rest;
    if (b == 0)
        return a / b;
    rest = fmod(a, b);
    return floor((a - rest) / b) - (rest != 0 && (b < 0) != (rest < 0));
}

static double logaddexp(double a, double b)
{
    return a == b ? a + log(2) : isunordered(a, b) ? a + b : fmax(a, b) + log1p(exp(-fabs(a - b)));
}

static double logaddexp2(double a, double b)
{
    return a == b ? a + 1 : isunordered(a, b) ? a + b : fmax(a, b) + log1p(exp2(-fabs(a - b))) / log(2);
}

static double heaviside(double a, double b) { return isnan(a) ? a : a == 0 ? b : a > 0; }

static int is_finite(uint8_t a) { return !hifloat8_is_nan(a) && !hifloat8_is_infinite(a); }
static int sign_bit(uint8_t a) { return a > HIFLOAT8_NAN; }
static int zero(uint8_t a) { return a == 0; }

/* Comparisons that raise no flag for NaN. */
static int equal(double a, double b) { return a == b; }
static int not_equal(double a, double b) { return a != b; }
static int less(double a, double b) { return isless(a, b); }
static int less_equal(double a, double b) { return islessequal(a, b); }
static int greater(double a, double b) { return isgreater(a, b); }
static int greater_equal(double a, double b) { return isgreaterequal(a, b); }
static int both(double a, double b) { return a != 0 && b != 0; }
static int either(double a, double b) { return a != 0 || b != 0; }
static int one_of(double a, double b) { return (a != 0) != (b != 0); }

static uint8_t same(uint8_t a) { return a; }
static uint8_t sign(uint8_t a) { return a == 0 || hifloat8_is_nan(a) ? a : (uint8_t)((a & 0x80u) | hifloat8_of(1)); }
static uint8_t absolute(uint8_t a) { return hifloat8_is_nan(a) ? a : a & 0x7fu; }

/* There is no -0, and 0x80 is NaN. */
static uint8_t copysign_of(uint8_t a, uint8_t b)
{
    return hifloat8_is_nan(a) || a == 0 ? a : (uint8_t)((a & 0x7fu) | (sign_bit(b) ? 0x80u : 0));
}

static int greater_code(uint8_t a, uint8_t b) { return hifloat8_values[a] > hifloat8_values[b]; }

static uint8_t maximum(uint8_t a, uint8_t b)
{
    return hifloat8_is_nan(a) || hifloat8_is_nan(b) ? HIFLOAT8_NAN : greater_code(b, a) ? b : a;
}

static uint8_t minimum(uint8_t a, uint8_t b)
{
    return hifloat8_is_nan(a) || hifloat8_is_nan(b) ? HIFLOAT8_NAN : greater_code(a, b) ? b : a;
}

static uint8_t fmax_of(uint8_t a, uint8_t b) { return hifloat8_is_nan(a) ? b : hifloat8_is_nan(b) ? a : maximum(a, b); }
static uint8_t fmin_of(uint8_t a, uint8_t b) { return hifloat8_is_nan(a) ? b : hifloat8_is_nan(b) ? a : minimum(a, b); }

/* The neighbours of a number that is not NaN, by its place in the order of numbers. */
static uint8_t neighbour(uint8_t code, int step)
{
    int rank = hifloat8_ranks[code & 0x7fu], moved = (code & 0x80u ? -rank : rank) + step;
    uint8_t magnitude = hifloat8_ranked[moved < 0 ? -moved : moved];
    return (uint8_t)(magnitude | (moved < 0 ? 0x80u : 0));
}

static uint8_t nextafter_of(uint8_t a, uint8_t b)
{
    if (hifloat8_is_nan(a) || hifloat8_is_nan(b))
        return HIFLOAT8_NAN;
    return a == b ? a : neighbour(a, greater_code(b, a) ? 1 : -1);
}

/* The distance to the next number away from zero, with the number's sign. */
static uint8_t spacing(uint8_t a)
{
    if (hifloat8_is_nan(a) || hifloat8_is_infinite(a))
        return HIFLOAT8_NAN;
    return hifloat8_of((double)hifloat8_values[neighbour(a, a & 0x80u ? -1 : 1)] - (double)hifloat8_values[a]);
}

static void loop_of_divmod(char **data, const npy_intp *counts, const npy_intp *strides, void *function)
{
    (void)function;
    for (npy_intp i = 0; i < counts[0]; i++) {
        uint8_t a = *(uint8_t *)(data[0] + i * strides[0]), b = *(uint8_t *)(data[1] + i * strides[1]);
        *(uint8_t *)(data[2] + i * strides[2]) = rounded(floor_divide(A, B));
        *(uint8_t *)(data[3] + i * strides[3]) = rounded(remainder_of(A, B));
    }
}

static void loop_of_clip(char **data, const npy_intp *counts, const npy_intp *strides, void *function)
{
    (void)function;
    for (npy_intp i = 0; i < counts[0]; i++) {
        uint8_t a = *(uint8_t *)(data[0] + i * strides[0]), low = *(uint8_t *)(data[1] + i * strides[1]);
        *(uint8_t *)(data[3] + i * strides[3]) = minimum(maximum(a, low), *(uint8_t *)(data[2] + i * strides[2]));
    }
}

/* (m,n) by (n,p); counts: how many of them, m, n, p; strides: of the three arrays, then of their axes. */
static void loop_of_matmul(char **data, const npy_intp *counts, const npy_intp *strides, void *function)
{
    (void)function;
    for (npy_intp outer = 0; outer < counts[0]; outer++)
        for (npy_intp m = 0; m < counts[1]; m++)
            for (npy_intp p = 0; p < counts[3]; p++) {
                const char *row = data[0] + outer * strides[0] + m * strides[3];
                const char *column = data[1] + outer * strides[1] + p * strides[6];
                *(uint8_t *)(data[2] + outer * strides[2] + m * strides[7] + p * strides[8]) =
                    hifloat8_dot(row, strides[4], column, strides[5], counts[2]);
            }
}

static struct {
    const char *name;
    operation apply;
    PyUFuncGenericFunction loop;
    int arguments; /* inputs and outputs */
    int truth;     /* whether the output is a bool */
} functions[] = {
#define OF_ONE(name, function) {#name, {.of_one = function}, loop_of_one, 2, 0}
#define OF_TWO(name, function) {#name, {.of_two = function}, loop_of_two, 3, 0}
#define OF_CODE(name, function) {#name, {.code_of_one = function}, loop_of_one_code, 2, 0}
#define OF_CODES(name, function) {#name, {.code_of_two = function}, loop_of_two_codes, 3, 0}
#define TRUTH_OF_ONE(name, function) {#name, {.truth_of_one = function}, loop_of_one_truth, 2, 1}
#define TRUTH_OF_TWO(name, function) {#name, {.truth_of_two = function}, loop_of_two_truth, 3, 1}
    OF_TWO(add, add), OF_TWO(subtract, subtract), OF_TWO(multiply, multiply), OF_TWO(divide, divide),
    OF_TWO(floor_divide, floor_divide), OF_TWO(remainder, remainder_of), OF_TWO(fmod, fmod), OF_TWO(power, pow),
    OF_TWO(float_power, pow), OF_TWO(arctan2, atan2), OF_TWO(hypot, hypot), OF_TWO(logaddexp, logaddexp),
    OF_TWO(logaddexp2, logaddexp2), OF_TWO(heaviside, heaviside),
    OF_ONE(negative, negative), OF_ONE(square, square), OF_ONE(reciprocal, reciprocal), OF_ONE(sqrt, sqrt),
    OF_ONE(cbrt, cbrt), OF_ONE(exp, exp), OF_ONE(exp2, exp2), OF_ONE(expm1, expm1), OF_ONE(log, log),
    OF_ONE(log2, log2), OF_ONE(log10, log10), OF_ONE(log1p, log1p), OF_ONE(sin, sin), OF_ONE(cos, cos),
    OF_ONE(tan, tan), OF_ONE(arcsin, asin), OF_ONE(arccos, acos), OF_ONE(arctan, atan), OF_ONE(sinh, sinh),
    OF_ONE(cosh, cosh), OF_ONE(tanh, tanh), OF_ONE(arcsinh, asinh), OF_ONE(arccosh, acosh), OF_ONE(arctanh, atanh),
    OF_ONE(floor, floor), OF_ONE(ceil, ceil), OF_ONE(rint, nearbyint), OF_ONE(trunc, trunc),
    OF_ONE(deg2rad, radians), OF_ONE(radians, radians), OF_ONE(rad2deg, degrees), OF_ONE(degrees, degrees),
    OF_CODE(positive, same), OF_CODE(conjugate, same), OF_CODE(absolute, absolute), OF_CODE(fabs, absolute),
    OF_CODE(sign, sign), OF_CODE(spacing, spacing), OF_CODES(copysign, copysign_of),
    OF_CODES(nextafter, nextafter_of), OF_CODES(maximum, maximum), OF_CODES(minimum, minimum),
    OF_CODES(fmax, fmax_of), OF_CODES(fmin, fmin_of),
    TRUTH_OF_ONE(isnan, hifloat8_is_nan), TRUTH_OF_ONE(isinf, hifloat8_is_infinite), TRUTH_OF_ONE(isfinite, is_finite),
    TRUTH_OF_ONE(signbit, sign_bit), TRUTH_OF_ONE(logical_not, zero),
    TRUTH_OF_TWO(equal, equal), TRUTH_OF_TWO(not_equal, not_equal), TRUTH_OF_TWO(less, less),
    TRUTH_OF_TWO(less_equal, less_equal), TRUTH_OF_TWO(greater, greater), TRUTH_OF_TWO(greater_equal, greater_equal),
    TRUTH_OF_TWO(logical_and, both), TRUTH_OF_TWO(logical_or, either), TRUTH_OF_TWO(logical_xor, one_of),
    {"divmod", {NULL}, loop_of_divmod, 4, 0}, {"matmul", {NULL}, loop_of_matmul, 3, 0},
};

static int add_loop(PyObject *module, const char *name, PyUFuncGenericFunction loop, operation *apply, int arguments,
                    int truth)
{
    PyObject *function = PyObject_GetAttrString(module, name);
    int types[4] = {hifloat8_number, hifloat8_number, hifloat8_number, hifloat8_number}, failed;
    if (function == NULL)
        return -1;
    if (truth)
        types[arguments - 1] = NPY_BOOL;
    failed = PyUFunc_RegisterLoopForType((PyUFuncObject *)function, hifloat8_number, loop, types, apply);
    Py_DECREF(function); /* NumPy keeps its functions */
    return failed;
}

int register_hifloat8_ufuncs(void)
{
    PyObject *numpy = PyImport_ImportModule("numpy"), *core = PyImport_ImportModule("numpy._core.umath");
    int failed = numpy == NULL;
    if (core == NULL && !failed) { /* NumPy 1 */
        PyErr_Clear();
        core = PyImport_ImportModule("numpy.core.umath");
    }
    failed = failed || core == NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions && !failed; i++)
        failed = add_loop(numpy, functions[i].name, functions[i].loop, &functions[i].apply, functions[i].arguments,
                          functions[i].truth) < 0;
    failed = failed || add_loop(core, "clip", loop_of_clip, NULL, 4, 0) < 0; /* numpy.clip is a function around it */
    Py_XDECREF(numpy);
    Py_XDECREF(core);
    return failed ? -1 : 0;
}
