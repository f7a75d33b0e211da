/* Frames of one queue in a piece of the log, checked as `good_frames.py` does, which is the plain twin.

   Only the stable ABI of Python 3.11 is used. Memory is reached through bytes objects only, whose length is compared
   with every place before it is read; no code of Python's runs meanwhile. setup.py defines SOURCE, a number of what this
   is compiled from. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "formats/layouts.h"
#include "store/compiled/crc32.h"

static uint32_t
int_at(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static uint64_t
long_at(const unsigned char *at)
{
    return (uint64_t)int_at(at) << 32 | int_at(at + 4);
}

/* What all frames share. */
typedef struct {
    const unsigned char *window;
    const char *topic;
    Py_ssize_t window_size, topic_size;
    int64_t begin, queue_id;
    CrcFunction crc;
} Piece;

static void
set_piece(Piece *piece, PyObject *window, int64_t begin, int64_t queue_id, PyObject *topic, unsigned long long crc)
{
    piece->window = (const unsigned char *)PyBytes_AsString(window);
    piece->window_size = PyBytes_Size(window);
    piece->topic = PyBytes_AsString(topic);
    piece->topic_size = PyBytes_Size(topic);
    piece->begin = begin;
    piece->queue_id = queue_id;
    piece->crc = crc_function(crc);
}

static int
is_text(const unsigned char *data, Py_ssize_t size)
{
    for (Py_ssize_t at = 0; at < size; at++) {
        if (data[at] & 0x80) {
            PyObject *text = PyUnicode_DecodeUTF8((const char *)data, size, "strict");
            Py_XDECREF(text);
            PyErr_Clear();
            return text != NULL;
        }
    }
    return 1;
}

static int
may_have_crc(const unsigned char *properties, Py_ssize_t size)
{
    const Py_ssize_t name_size = sizeof PROPERTY_CRC_NAME - 1;
    Py_ssize_t at = size > PROPERTY_CRC_SIZE ? size - PROPERTY_CRC_SIZE : 0;
    return size - at >= name_size && properties[size - 1] == PROPERTY_END &&
           memcmp(properties + at, PROPERTY_CRC_NAME, (size_t)name_size) == 0;
}

/* Where the properties of the frame begin that is wanted, within the window; 0 if it is not there or not usual. */
static Py_ssize_t
properties_of(const Piece *piece, int64_t physical_offset, int64_t size, int64_t queue_offset)
{
    if (physical_offset < piece->begin || size < FRAME_HEAD_44_SIZE) {
        return 0;
    }
    /* the distance of two numbers of 64 bits has no room in one of them with a sign */
    const uint64_t at = (uint64_t)physical_offset - (uint64_t)piece->begin, window_size = (uint64_t)piece->window_size;
    if (at > window_size || (uint64_t)size > window_size - at) {
        return 0;
    }
    const unsigned char *head = piece->window + at, *body = head + FRAME_HEAD_44_SIZE;
    int64_t body_size = (int32_t)int_at(head + FRAME_HEAD_44_BODY_LENGTH);
    int64_t left = size - FRAME_HEAD_44_SIZE - piece->topic_size - PROPERTIES_LENGTH_SIZE;
    if ((int32_t)int_at(head + FRAME_HEAD_44_TOTAL_SIZE) != size ||
        int_at(head + FRAME_HEAD_44_MAGIC_CODE) != MESSAGE_MAGIC_V1 ||
        (int64_t)long_at(head + FRAME_HEAD_44_PHYSICAL_OFFSET) != physical_offset ||
        (int64_t)long_at(head + FRAME_HEAD_44_QUEUE_OFFSET) != queue_offset ||
        (int32_t)int_at(head + FRAME_HEAD_44_QUEUE_ID) != piece->queue_id ||
        int_at(head + FRAME_HEAD_44_SYS_FLAG) & SYS_FLAG_V6 || body_size < 0 || body_size > left ||
        memcmp(body + body_size, piece->topic, (size_t)piece->topic_size) != 0) {
        return 0;
    }
    const unsigned char *length = body + body_size + piece->topic_size, *properties = length + PROPERTIES_LENGTH_SIZE;
    int64_t properties_size = left - body_size;
    if ((length[0] << 8 | length[1]) != properties_size || properties_size > MAXIMUM_PROPERTIES_SIZE ||
        (body_size &&
         (piece->crc(0, body, (uint64_t)body_size) & CRC_MASK) != int_at(head + FRAME_HEAD_44_BODY_CRC)) ||
        !is_text(properties, (Py_ssize_t)properties_size) ||
        may_have_crc(properties, (Py_ssize_t)properties_size)) {
        return 0;
    }
    return (Py_ssize_t)(properties - piece->window);
}

/* (frame, properties) of a place; NULL with an exception if there is no memory. */
static PyObject *
pair_of(const Piece *piece, Py_ssize_t at, Py_ssize_t size, Py_ssize_t properties_at)
{
    const char *window = (const char *)piece->window;
    PyObject *pair = PyTuple_New(2);
    PyObject *frame = PyBytes_FromStringAndSize(window + at, size);
    PyObject *properties = PyBytes_FromStringAndSize(window + properties_at, at + size - properties_at);
    if (pair == NULL || frame == NULL || properties == NULL) {
        Py_XDECREF(pair);
        Py_XDECREF(frame);
        Py_XDECREF(properties);
        return NULL;
    }
    PyTuple_SetItem(pair, 0, frame);
    PyTuple_SetItem(pair, 1, properties);
    return pair;
}

/* The unit of a queue that stands at a place among `units`. */
typedef struct {
    int64_t physical_offset, size;
} Unit;

static Unit
unit_at(const char *units, Py_ssize_t number)
{
    const unsigned char *at = (const unsigned char *)units + number * CONSUMEQUEUE_UNIT_SIZE;
    Unit unit = {(int64_t)long_at(at + CONSUMEQUEUE_UNIT_PHYSICAL_OFFSET),
                 (int32_t)int_at(at + CONSUMEQUEUE_UNIT_MESSAGE_SIZE)};
    return unit;
}

/* Where the frame of a unit ends; -1 where no frame has such a place. */
static int64_t
end_of(Unit unit)
{
    return unit.physical_offset < 0 || unit.size < 0 || unit.physical_offset > INT64_MAX - unit.size
               ? -1
               : unit.physical_offset + unit.size;
}

static PyObject *
next_read(PyObject *module, PyObject *arguments)
{
    const char *units;
    Py_ssize_t size, number;
    long long near, ahead;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "LLy#n", &near, &ahead, &units, &size, &number)) {
        return NULL;
    }
    Py_ssize_t count = size / CONSUMEQUEUE_UNIT_SIZE;
    if (number < 0 || number >= count) {
        PyErr_SetString(PyExc_ValueError, "there is no such unit");
        return NULL;
    }
    Unit first = unit_at(units, number);
    int64_t end = end_of(first);
    for (number++; end >= 0 && number < count; number++) {
        Unit unit = unit_at(units, number);
        int64_t next_end = end_of(unit);
        if (unit.physical_offset < end || unit.physical_offset - end > near || next_end < 0 ||
            next_end - first.physical_offset > ahead) {
            break;
        }
        end = next_end;
    }
    return Py_BuildValue("(LL)", (long long)first.physical_offset, (long long)end);
}

static PyObject *
fitting(PyObject *module, PyObject *arguments)
{
    const char *units;
    Py_ssize_t size;
    long long most;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "y#L", &units, &size, &most)) {
        return NULL;
    }
    Py_ssize_t count = size / CONSUMEQUEUE_UNIT_SIZE, fits = count > 0;
    int64_t total = 0;
    for (Py_ssize_t number = 0; number < count; number++) {
        total += unit_at(units, number).size;
        if (total <= most) {
            fits = number + 1;
        }
    }
    return PyLong_FromSsize_t(fits);
}

static PyObject *
good_run(PyObject *module, PyObject *arguments)
{
    PyObject *window, *topic;
    Piece piece;
    const char *units;
    Py_ssize_t size, number;
    long long begin, slot, queue_id;
    unsigned long long crc;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KO!Ly#nLLO!", &crc, &PyBytes_Type, &window, &begin, &units, &size, &number,
                          &slot, &queue_id, &PyBytes_Type, &topic)) {
        return NULL;
    }
    if (number < 0) {
        PyErr_SetString(PyExc_ValueError, "there is no such unit");
        return NULL;
    }
    set_piece(&piece, window, begin, queue_id, topic, crc);
    const Py_ssize_t count = size / CONSUMEQUEUE_UNIT_SIZE, first = number;
    Py_ssize_t total = 0;
    int is_whole = 1;
    for (; number < count && slot <= INT64_MAX - number; number++) {
        Unit unit = unit_at(units, number);
        if (properties_of(&piece, unit.physical_offset, unit.size, slot + number) == 0 ||
            unit.size > PY_SSIZE_T_MAX - total) {
            break;
        }
        is_whole &= unit.physical_offset - begin == total;
        total += (Py_ssize_t)unit.size;
    }
    if (is_whole && total == piece.window_size) {
        /* what was read is what is given, without a copy */
        return Py_BuildValue("(On)", window, number - first);
    }
    PyObject *frames = PyBytes_FromStringAndSize(NULL, total);
    if (frames == NULL) {
        return NULL;
    }
    char *to = PyBytes_AsString(frames);
    for (Py_ssize_t one = first; one < number; one++) {
        Unit unit = unit_at(units, one);
        memcpy(to, piece.window + (unit.physical_offset - begin), (size_t)unit.size);
        to += unit.size;
    }
    return Py_BuildValue("(Nn)", frames, number - first);
}

static PyObject *
good_frames(PyObject *module, PyObject *arguments)
{
    PyObject *window, *wanted, *topic;
    Piece piece;
    Py_ssize_t number;
    long long begin, queue_id;
    unsigned long long crc;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "KO!LO!nLO!", &crc, &PyBytes_Type, &window, &begin, &PyList_Type, &wanted, &number,
                          &queue_id, &PyBytes_Type, &topic)) {
        return NULL;
    }
    PyObject *found = PyList_New(0);
    if (found == NULL || number < 0) {
        return found;
    }
    set_piece(&piece, window, begin, queue_id, topic, crc);
    for (; number < PyList_Size(wanted); number++) {
        long long physical_offset, size, queue_offset;
        if (!PyArg_ParseTuple(PyList_GetItem(wanted, number), "LLL", &physical_offset, &size, &queue_offset)) {
            Py_DECREF(found);
            return NULL;
        }
        Py_ssize_t properties_at = properties_of(&piece, physical_offset, size, queue_offset);
        if (properties_at == 0) {
            break;
        }
        PyObject *pair = pair_of(&piece, (Py_ssize_t)(physical_offset - begin), (Py_ssize_t)size, properties_at);
        if (pair == NULL || PyList_Append(found, pair) < 0) {
            Py_XDECREF(pair);
            Py_DECREF(found);
            return NULL;
        }
        Py_DECREF(pair);
    }
    return found;
}

static PyMethodDef methods[] = {
    {"next_read", next_read, METH_VARARGS, "next_read(near, ahead, units, number): see good_frames.py."},
    {"fitting", fitting, METH_VARARGS, "fitting(units, most): see good_frames.py."},
    {"good_run", good_run, METH_VARARGS,
     "good_run(crc_address, window, begin, units, number, slot, queue_id, topic): see good_frames.py."},
    {"good_frames", good_frames, METH_VARARGS,
     "good_frames(crc_address, window, begin, wanted, number, queue_id, topic): see good_frames.py."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "frame_checks", "Frames of a queue, checked.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit_frame_checks(void)
{
    make_crc_tables();
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && PyModule_AddStringConstant(module, "SOURCE", SOURCE) < 0) {
        Py_DECREF(module);
        return NULL;
    }
    return module;
}
