"""The instruction set that the engine runs on: the best one that this machine has, or the one that `CONVREG_ISA` or a test
names.

uses: nothing
gives: current, vectors_a_cycle
"""

cdef const instruction_set* current = NULL
cdef str cap = ""  # the name that `current` is not better than, if there is one


def compiled() -> list[str]:
    """Names of the instruction sets this build has code for, best first."""
    cdef int count, i
    cdef const instruction_set* const* sets = instruction_sets(&count)
    return [sets[i].name.decode() for i in range(count)]


def usable() -> list[str]:
    """Names of those the machine can run, best first."""
    cdef int count, i
    cdef const instruction_set* const* sets = instruction_sets(&count)
    return [sets[i].name.decode() for i in range(count) if sets[i].usable()]


def isa() -> str:
    """Name of the one in use."""
    return current.name.decode()


def conversions_address() -> int:
    """Address of its `conversion_functions`."""
    return <uintptr_t>&current.conversions


def use_isa(name: str) -> None:
    """Run every later call on the best usable instruction set that is not better than `name`, or without a name on the
    fastest.  "avx512" alone means the sets that all processors with AVX-512 have."""
    global cap, current
    cdef int count, i
    cdef const instruction_set* const* sets = instruction_sets(&count)
    names = compiled()
    if name and name not in names:
        raise ValueError(f"no instruction set {name!r}; this build has {', '.join(names)}")
    for i in range(names.index(name) if name else 0, count):
        if sets[i].usable() and (name or sets[i].preferred == NULL or sets[i].preferred()):
            cap, current = name, sets[i]
            want_byte_look_ups(name != "avx512")
            return


cdef inline double vectors_a_cycle(const product_rates* measured) noexcept nogil:
    """Multiply-adds of 512-bit vectors that a core begins in a cycle: one or two."""
    return measured.multiply_adds / (16 * measured.cycles)


def rates() -> dict[str, float]:
    """GFLOP/s of one thread on registers, with float32 multiply-adds and with dot products of bfloat16 pairs, measured once, their
    ratio, and the multiply-adds of vectors in a cycle; empty where there are no dot products."""
    cdef const product_rates* measured = measured_rates()
    if measured == NULL:
        return {}
    return {"multiply_adds": 2 * measured.multiply_adds, "dot_products": 2 * measured.dot_products,
            "ratio": measured.dot_products / measured.multiply_adds, "per_cycle": vectors_a_cycle(measured)}


def reason() -> str:
    """Why `isa` is in use, in words."""
    if cap:
        return f"the best usable set that is not better than {cap}, which is named"
    if not rates() or isa() not in ("avx512bf16", "avx512"):
        return "the best usable set"
    return (f"dot products take {rates()['ratio']:.2f} times the products of multiply-adds in the same time, and are used from "
            f"{DOT_PRODUCTS_PAY:.2f} times on")


unknown_isa = None
"""What `CONVREG_ISA` names if this build has no such instruction set: then every call is refused."""

try:
    use_isa(os.environ.get("CONVREG_ISA", "").strip().lower())
except ValueError:
    unknown_isa = os.environ["CONVREG_ISA"]
    use_isa("")
