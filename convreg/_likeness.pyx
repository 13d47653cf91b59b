"""What a call looks like from outside: compiled, since every call asks and small ones notice."""

from numpy import ndarray


cdef bint plain(object value):
    """Whether a value is of a kind whose equality, with the kind, is that of its meaning."""
    kind = type(value)
    return kind is int or kind is str or kind is bool or value is None


cdef bint note(list parts, object name, object value, object tensors) except -1:
    """Append a name and what tells its value, pairs of kind and value; false where nothing does."""
    kind = type(value)
    parts.append(name)
    if kind is list or kind is tuple:
        parts.append(list)
        for entry in value:
            if not plain(entry):
                return False
            parts.append(type(entry))
            parts.append(entry)
    elif kind is ndarray:
        if name not in tensors:
            return False
        parts.append(value.shape)
        parts.append(value.dtype)
    elif plain(value):
        parts.append(kind)
        parts.append(value)
    else:
        return False
    return True


def likeness(names, tensors, args, kwargs):
    """Return a key that calls share which differ in their arrays' numbers alone, or None for one out of the ordinary.

    `names` are those of positional arguments; arrays may stand where `tensors` are named.
    """
    cdef list parts = [len(args)]
    if len(args) > len(names):
        return None
    for name, value in zip(names, args):
        if not note(parts, name, value, tensors):
            return None
    for name, value in kwargs.items():
        if not note(parts, name, value, tensors):
            return None
    return tuple(parts)
