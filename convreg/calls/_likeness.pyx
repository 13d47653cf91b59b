"""What a call looks like from outside: compiled, since every call asks and small ones notice."""

from numpy import ndarray


cdef inline bint plain(object kind, object value):
    """Whether a value is of a kind whose equality, with the kind, is that of its meaning."""
    return kind is int or kind is str or kind is bool or value is None


cdef bint note_entries(list parts, object entries) except -1:
    """Append integers as one tuple, and other entries as pairs of kind and value; false where one tells nothing."""
    for entry in entries:
        if type(entry) is not int:
            break
    else:
        parts.append(tuple(entries))
        return True
    for entry in entries:
        kind = type(entry)
        if not plain(kind, entry):
            return False
        parts.append(kind)
        parts.append(entry)
    return True


cdef bint note(list parts, object name, object value, object tensors) except -1:
    """Append a name and what tells its value, after what tells its kind; false where nothing does."""
    kind = type(value)
    parts.append(name)
    if kind is ndarray:
        if name not in tensors:
            return False
        parts.append(value.shape)
        parts.append(value.dtype)
    elif kind is list:
        parts.append(list)
        return note_entries(parts, <list>value)
    elif kind is tuple:
        parts.append(list)
        return note_entries(parts, <tuple>value)
    elif plain(kind, value):
        parts.append(kind)
        parts.append(value)
    else:
        return False
    return True


def likeness(names, tensors, args, kwargs):
    """Return a key that calls share which differ in their arrays' numbers alone, or None for one out of the ordinary.

    `names` are those of positional arguments; arrays may stand where `tensors` are named.
    """
    cdef Py_ssize_t place, count = len(args)
    cdef list parts = [count]
    if count > len(names):
        return None
    for place in range(count):
        if not note(parts, names[place], args[place], tensors):
            return None
    for name, value in kwargs.items():
        if not note(parts, name, value, tensors):
            return None
    return tuple(parts)
