/* The rates of fused multiply-adds, of dot products of bfloat16 pairs and of cycles on this processor, measured on registers.
 *
 * Runs of products alternate, and the shortest of each kind counts: another process can lengthen runs, but never shorten them.
 * The measurement ends when neither kind has become shorter for a while, so that it outlasts the time in which a processor
 * switches on the upper halves of its vector units.  Cycles follow: between runs of products they would switch them off. */
enum {
    RATE_CHAINS = 16,  /* independent sums, as EACH_CHAIN has them: more than an instruction's latency times its rate */
    RATE_STEPS = 96,   /* instructions of each in a run, which takes 0.3 to 1.2 microseconds */
    RATE_CYCLES = 2048, /* additions in a run that each wait for the one before, a cycle each */
    RATE_QUIET = 24,   /* runs without a shorter one, after which the measurement ends */
    RATE_RUNS = 200,   /* the most runs */
};

static int64_t nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The sums are variables of their own, because the compiler would store an array. */
#define EACH_CHAIN(STATEMENT, INSTRUCTION) \
    STATEMENT(0, INSTRUCTION) STATEMENT(1, INSTRUCTION) STATEMENT(2, INSTRUCTION) STATEMENT(3, INSTRUCTION) \
    STATEMENT(4, INSTRUCTION) STATEMENT(5, INSTRUCTION) STATEMENT(6, INSTRUCTION) STATEMENT(7, INSTRUCTION) \
    STATEMENT(8, INSTRUCTION) STATEMENT(9, INSTRUCTION) STATEMENT(10, INSTRUCTION) STATEMENT(11, INSTRUCTION) \
    STATEMENT(12, INSTRUCTION) STATEMENT(13, INSTRUCTION) STATEMENT(14, INSTRUCTION) STATEMENT(15, INSTRUCTION)
#define BEGIN_CHAIN(i, INSTRUCTION) vector chain##i = BROADCAST(0);
#define ADD_TO_CHAIN(i, INSTRUCTION) \
    chain##i = INSTRUCTION(operand, operand, chain##i); \
    __asm__ volatile("" : "+v"(chain##i)); /* neither joined with others nor dropped */

#define DEFINE_RATE_RUN(name, INSTRUCTION) \
    static int64_t name(void) /* its time in nanoseconds */ \
    { \
        EACH_CHAIN(BEGIN_CHAIN, INSTRUCTION) \
        vector operand = BROADCAST(0); \
        __asm__("" : "+v"(operand)); \
        int64_t start = nanoseconds(); \
        for (int step = 0; step < RATE_STEPS; step++) { \
            EACH_CHAIN(ADD_TO_CHAIN, INSTRUCTION) \
        } \
        return nanoseconds() - start; \
    }

DEFINE_RATE_RUN(run_multiply_adds, MULTIPLY_ADD)
DEFINE_RATE_RUN(run_dot_products, MULTIPLY_ADD_PAIRS)

static int64_t run_cycles(void)
{
    uint64_t sum = 0, operand = 1; /* a sanitizer's check of signed overflow would be part of each addition */
    __asm__("" : "+r"(operand)); /* not a constant, which some processors add without an instruction */
    int64_t start = nanoseconds();
#pragma GCC unroll 16
    for (int i = 0; i < RATE_CYCLES; i++) {
        sum += operand;
        __asm__ volatile("" : "+r"(sum));
    }
    return nanoseconds() - start;
}

static void measure_rates(product_rates *rates)
{
    int64_t multiply_adds = INT64_MAX, dot_products = INT64_MAX, cycles = INT64_MAX;
    for (int run = 0, quiet = 0; run < RATE_RUNS && quiet < RATE_QUIET; run++, quiet++) {
        int64_t one = run_multiply_adds(), other = run_dot_products();
        if (one < multiply_adds || other < dot_products)
            quiet = 0;
        multiply_adds = one < multiply_adds ? one : multiply_adds;
        dot_products = other < dot_products ? other : dot_products;
    }
    for (int run = 0, quiet = 0; run < RATE_RUNS && quiet < RATE_QUIET; run++, quiet++) {
        int64_t one = run_cycles();
        if (one < cycles) {
            cycles = one;
            quiet = 0;
        }
    }
    double products = (double)WIDTH * RATE_CHAINS * RATE_STEPS;
    rates->multiply_adds = products / (double)(multiply_adds > 0 ? multiply_adds : 1);
    rates->dot_products = 2 * products / (double)(dot_products > 0 ? dot_products : 1);
    rates->cycles = RATE_CYCLES / (double)(cycles > 0 ? cycles : 1);
}
