/* A slice of octets whose end is before its start is empty. mypyc's own code for it asks for a negative size. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static inline PyObject *bytes_of_size(const char *octets, Py_ssize_t size)
{
    return PyBytes_FromStringAndSize(octets, size < 0 ? 0 : size);
}

static inline PyObject *bytearray_of_size(const char *octets, Py_ssize_t size)
{
    return PyByteArray_FromStringAndSize(octets, size < 0 ? 0 : size);
}

#define PyBytes_FromStringAndSize bytes_of_size
#define PyByteArray_FromStringAndSize bytearray_of_size
