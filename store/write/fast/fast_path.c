/* The fast path in compiled form: a message, as the named tuple that it is, becomes bytes.

   FastPath.put        puts one ordinary message into the window of the mapped file. Plain twin: ordinary.py.
   FastPath.fill_rows  turns many messages into rows. Plain twin: bulk_rows.py.

   Only the stable ABI of Python 3.11 is used, so that nothing here knows how an object is laid out. What a caller hands
   in may be anything: whatever is not exactly of the type that is expected, is not known yet or is unusual is left to
   the plain form, with nothing done. The GIL is held from begin to end, and between the first look at what puts share
   and the last change of it no code of Python's runs: exact ints, texts, bytes and dicts of texts have none. So a put
   is whole or not there, and needs no lock against another one of its kind.

   Memory is reached through buffers only, whose length is compared with every place before it is written. setup.py
   defines SOURCE, a number of what this is compiled from. */

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "formats/layouts.h"
#include "store/compiled/crc32.h"

/* a time that is to be filled in: NO_TIME (bulk_rows.py) */
#define NO_TIME INT64_MIN

/* what stands for a length where there is none */
enum { UNKNOWN = -1, TOO_LONG = -2, UNUSUAL = -3 };

/* ---- numbers and bytes */

static void
set_short(unsigned char *at, uint16_t value)
{
    at[0] = (unsigned char)(value >> 8);
    at[1] = (unsigned char)value;
}

static void
set_int(unsigned char *at, uint32_t value)
{
    for (int place = 0; place < 4; place++) {
        at[place] = (unsigned char)(value >> (24 - 8 * place));
    }
}

static void
set_long(unsigned char *at, uint64_t value)
{
    set_int(at, (uint32_t)(value >> 32));
    set_int(at + 4, (uint32_t)value);
}

/* ---- messages */

/* What a FastPath holds, in the order of FastParts (extension.py). */
enum {
    STATE, IS_LOCKED, TOPICS, NAMES, IO, FOLLOWER, WAKE, CLOCK, OTHERWISE, STORE_HOST, RESULT_TYPE, STORED, MESSAGE_TYPE, HOST_TYPE,
    NO_PROPERTIES, PARTS
};

typedef struct {
    PyObject_HEAD
    PyObject *parts[PARTS];
    CrcFunction crc;
    int64_t largest_body, unusual_flags;
    unsigned char store_host[HOST_SIZE];
    char scratch[MAXIMUM_PROPERTIES_SIZE];
} FastPath;

static int
is_of(PyObject *thing, PyObject *type)
{
    return (PyObject *)Py_TYPE(thing) == type;
}

static int
is_new_message(FastPath *self, PyObject *message)
{
    /* made by tuple.__new__ one can have fewer fields */
    return is_of(message, self->parts[MESSAGE_TYPE]) && PyTuple_Size(message) == MESSAGE_FIELDS &&
           PyTuple_GetItem(message, MESSAGE_PROPERTY_BYTES) == Py_None &&
           PyTuple_GetItem(message, MESSAGE_STORE_TIMESTAMP) == Py_None &&
           PyTuple_GetItem(message, MESSAGE_STORE_HOST) == Py_None &&
           PyUnicode_CheckExact(PyTuple_GetItem(message, MESSAGE_TOPIC)) &&
           PyBytes_CheckExact(PyTuple_GetItem(message, MESSAGE_BODY));
}

/* An int of 64 bits; 0 where the field is none, or of a derived type. */
static int
int_of(PyObject *message, Py_ssize_t field, int64_t *value)
{
    PyObject *number = PyTuple_GetItem(message, field);
    int overflow = 0;
    if (!PyLong_CheckExact(number)) {
        return 0;
    }
    *value = PyLong_AsLongLongAndOverflow(number, &overflow);
    return !overflow;
}

static int
has_32_bits(int64_t number)
{
    return number >= INT32_MIN && number <= INT32_MAX;
}

typedef struct {
    int64_t queue_id, flag, sys_flag, born_timestamp, reconsume_times, prepared;
} Numbers;

/* `now` where the message has no born time. */
static int
numbers_of(PyObject *message, int64_t now, Numbers *numbers)
{
    numbers->born_timestamp = now;
    return int_of(message, MESSAGE_QUEUE_ID, &numbers->queue_id) && int_of(message, MESSAGE_FLAG, &numbers->flag) &&
           int_of(message, MESSAGE_SYS_FLAG, &numbers->sys_flag) &&
           int_of(message, MESSAGE_RECONSUME_TIMES, &numbers->reconsume_times) &&
           int_of(message, MESSAGE_PREPARED_TRANSACTION_OFFSET, &numbers->prepared) &&
           (PyTuple_GetItem(message, MESSAGE_BORN_TIMESTAMP) == Py_None ||
            int_of(message, MESSAGE_BORN_TIMESTAMP, &numbers->born_timestamp));
}

/* The eight bytes of the producer's host in a frame, where it is one of IPv4. */
static int
pack_born_host(FastPath *self, PyObject *message, unsigned char *target)
{
    PyObject *host = PyTuple_GetItem(message, MESSAGE_BORN_HOST);
    if (!is_of(host, self->parts[HOST_TYPE]) || PyTuple_Size(host) != HOST_FIELDS) {
        return 0;
    }
    PyObject *ip = PyTuple_GetItem(host, HOST_IP);
    int64_t port;
    if (!PyBytes_CheckExact(ip) || PyBytes_Size(ip) != HOST_SIZE - 4 || !int_of(host, HOST_PORT, &port) ||
        !has_32_bits(port)) {
        return 0;
    }
    memcpy(target, PyBytes_AsString(ip), HOST_SIZE - 4);
    set_int(target + HOST_SIZE - 4, (uint32_t)port);
    return 1;
}

/* Write the stored form of a message's properties to `target`, which has `room` bytes; how many they are. UNUSUAL for
   what is neither a dict nor the default; UNKNOWN for other names, and for values that are no text or hold a separator;
   TOO_LONG for what does not fit. */
static Py_ssize_t
write_properties(FastPath *self, PyObject *message, char *target, Py_ssize_t room)
{
    PyObject *properties = PyTuple_GetItem(message, MESSAGE_PROPERTIES), *key, *value;
    Py_ssize_t position = 0, used = 0;
    if (properties == self->parts[NO_PROPERTIES]) {
        return 0;
    }
    if (!PyDict_CheckExact(properties)) {
        return UNUSUAL;
    }
    while (PyDict_Next(properties, &position, &key, &value)) {
        PyObject *name = PyUnicode_CheckExact(key) ? PyDict_GetItemWithError(self->parts[NAMES], key) : NULL;
        char *name_bytes;
        Py_ssize_t name_size, size;
        if (name == NULL || !PyUnicode_Check(value) || PyBytes_AsStringAndSize(name, &name_bytes, &name_size) < 0) {
            PyErr_Clear();
            return UNKNOWN;
        }
        const char *text = PyUnicode_AsUTF8AndSize(value, &size);
        if (text == NULL) { /* half a surrogate pair */
            PyErr_Clear();
            return UNKNOWN;
        }
        if (name_size + 1 > room - used || size > room - used - name_size - 1) {
            return TOO_LONG;
        }
        if (memchr(text, PROPERTY_END, (size_t)size) != NULL) {
            return UNKNOWN;
        }
        memcpy(target + used, name_bytes, (size_t)name_size);
        memcpy(target + used + name_size, text, (size_t)size);
        used += name_size + size;
        target[used++] = PROPERTY_END;
    }
    return used;
}

/* ---- one message */

/* names of attributes, made once */
static struct {
    PyObject *window, *last_timestamp, *wrote_position, *committed_position, *store_timestamp, *value;
    PyObject *is_idle, *observer;
} named;
static PyObject *empty_text;
/* how a tuple of a derived type is made */
static newfunc make_tuple;

static int
int_attribute(PyObject *thing, PyObject *name, int64_t *value)
{
    PyObject *number = PyObject_GetAttr(thing, name);
    if (number == NULL) {
        return 0;
    }
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value != -1 || !PyErr_Occurred();
}

static int
is_attribute(PyObject *thing, PyObject *name, PyObject *wanted)
{
    PyObject *found = PyObject_GetAttr(thing, name);
    Py_XDECREF(found); /* singletons only, which live on */
    return found == wanted;
}

/* Whether nobody holds the put lock. */
static int
is_free(FastPath *self)
{
    PyObject *answer = PyObject_CallNoArgs(self->parts[IS_LOCKED]);
    Py_XDECREF(answer);
    return answer == Py_False;
}

/* Now, in ms since 1970; -1 with an exception. */
static int64_t
time_of(PyObject *clock)
{
    if (clock == Py_None) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    }
    PyObject *answer = PyObject_CallNoArgs(clock);
    int64_t now = answer == NULL ? -1 : PyLong_AsLongLong(answer);
    Py_XDECREF(answer);
    return now;
}

/* Where a frame goes: `file` and `mapped` are borrowed from `window`, `next_offset` and `field` from what is known. */
typedef struct {
    PyObject *window, *file, *mapped, *next_offset, *field;
    int64_t limit, start_offset, position, queue_offset, last_timestamp;
} Place;

/* Numbers as objects, made before anything is changed, because memory can be used up. */
typedef struct {
    PyObject *end, *queue_offset, *next_queue_offset, *physical_offset, *time;
} Objects;

static int
make_objects(const Place *place, int64_t end, int64_t now, Objects *objects)
{
    objects->end = PyLong_FromLongLong(end);
    objects->queue_offset = PyLong_FromLongLong(place->queue_offset);
    objects->next_queue_offset = PyLong_FromLongLong(place->queue_offset + 1);
    objects->physical_offset = PyLong_FromLongLong(place->start_offset + place->position);
    objects->time = PyLong_FromLongLong(now);
    return objects->end && objects->queue_offset && objects->next_queue_offset && objects->physical_offset &&
           objects->time;
}

static void
release_objects(Objects *objects)
{
    Py_XDECREF(objects->end);
    Py_XDECREF(objects->queue_offset);
    Py_XDECREF(objects->next_queue_offset);
    Py_XDECREF(objects->physical_offset);
    Py_XDECREF(objects->time);
}

/* Find the place of the next frame; 0 if there is none now. `window` is a new reference where it is not NULL. */
static int
find_place(FastPath *self, PyObject *message, Place *place)
{
    PyObject *state = self->parts[STATE], *queue_id = PyTuple_GetItem(message, MESSAGE_QUEUE_ID);
    PyObject *topic = PyDict_GetItemWithError(self->parts[TOPICS], PyTuple_GetItem(message, MESSAGE_TOPIC));
    if (topic == NULL || !PyLong_CheckExact(queue_id)) {
        return 0;
    }
    place->field = PyTuple_GetItem(topic, 0);
    place->next_offset = PyDict_GetItemWithError(PyTuple_GetItem(topic, 1), queue_id);
    if (place->next_offset == NULL || !is_attribute(self->parts[IO], named.observer, Py_None)) {
        return 0;
    }
    place->window = PyObject_GetAttr(state, named.window);
    if (place->window == NULL || place->window == Py_None) {
        return 0;
    }
    place->file = PyTuple_GetItem(place->window, 0);
    place->mapped = PyTuple_GetItem(place->window, 1);
    place->limit = PyLong_AsLongLong(PyTuple_GetItem(place->window, 2));
    place->start_offset = PyLong_AsLongLong(PyTuple_GetItem(place->window, 3));
    return int_attribute(place->file, named.wrote_position, &place->position) &&
           int_attribute(place->next_offset, named.value, &place->queue_offset) &&
           int_attribute(state, named.last_timestamp, &place->last_timestamp);
}

/* Write the frame to its place; 0 with nothing written if it must go another way. */
static int
write_frame(FastPath *self, PyObject *message, const Place *place, int64_t now, Objects *objects)
{
    Numbers numbers;
    unsigned char born_host[HOST_SIZE], first[8];
    char *body, *topic;
    Py_ssize_t body_size, topic_size, size;
    if (!pack_born_host(self, message, born_host) || !numbers_of(message, now, &numbers) ||
        numbers.sys_flag & self->unusual_flags || !has_32_bits(numbers.queue_id) || !has_32_bits(numbers.flag) ||
        !has_32_bits(numbers.sys_flag) || !has_32_bits(numbers.reconsume_times) ||
        PyBytes_AsStringAndSize(PyTuple_GetItem(message, MESSAGE_BODY), &body, &body_size) < 0 ||
        PyBytes_AsStringAndSize(place->field, &topic, &topic_size) < 0 || body_size > self->largest_body) {
        return 0;
    }
    size = write_properties(self, message, self->scratch, sizeof self->scratch);
    int64_t position = place->position;
    int64_t end = position + FRAME_HEAD_44_SIZE + body_size + topic_size + PROPERTIES_LENGTH_SIZE + size;
    Py_buffer buffer;
    /* a file that was closed, or may only be read, says so here */
    if (size < 0 || position < 0 || end > place->limit || !make_objects(place, end, now, objects) ||
        PyObject_GetBuffer(place->mapped, &buffer, PyBUF_WRITABLE) < 0) {
        return 0;
    }
    if (end > buffer.len) {
        PyBuffer_Release(&buffer);
        return 0;
    }
    unsigned char *head = (unsigned char *)buffer.buf + position, *at = head + FRAME_HEAD_44_SIZE;
    uint32_t crc = body_size ? self->crc(0, (unsigned char *)body, (uint64_t)body_size) & CRC_MASK : 0;
    set_int(head + FRAME_HEAD_44_BODY_CRC, crc);
    set_int(head + FRAME_HEAD_44_QUEUE_ID, (uint32_t)numbers.queue_id);
    set_int(head + FRAME_HEAD_44_FLAG, (uint32_t)numbers.flag);
    set_long(head + FRAME_HEAD_44_QUEUE_OFFSET, (uint64_t)place->queue_offset);
    set_long(head + FRAME_HEAD_44_PHYSICAL_OFFSET, (uint64_t)(place->start_offset + position));
    set_int(head + FRAME_HEAD_44_SYS_FLAG, (uint32_t)numbers.sys_flag);
    set_long(head + FRAME_HEAD_44_BORN_TIMESTAMP, (uint64_t)numbers.born_timestamp);
    memcpy(head + FRAME_HEAD_44_BORN_HOST_IP, born_host, HOST_SIZE);
    set_long(head + FRAME_HEAD_44_STORE_TIMESTAMP, (uint64_t)now);
    memcpy(head + FRAME_HEAD_44_STORE_HOST_IP, self->store_host, HOST_SIZE);
    set_int(head + FRAME_HEAD_44_RECONSUME_TIMES, (uint32_t)numbers.reconsume_times);
    set_long(head + FRAME_HEAD_44_PREPARED_TRANSACTION_OFFSET, (uint64_t)numbers.prepared);
    set_int(head + FRAME_HEAD_44_BODY_LENGTH, (uint32_t)body_size);
    memcpy(at, body, (size_t)body_size);
    at += body_size;
    memcpy(at, topic, (size_t)topic_size);
    at += topic_size;
    set_short(at, (uint16_t)size);
    memcpy(at + PROPERTIES_LENGTH_SIZE, self->scratch, (size_t)size);
    /* the moment in which somebody else sees the frame, whole */
    set_int(first + FRAME_HEAD_44_TOTAL_SIZE, (uint32_t)(end - position));
    set_int(first + FRAME_HEAD_44_MAGIC_CODE, MESSAGE_MAGIC_V1);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(head, first, sizeof first);
    PyBuffer_Release(&buffer);
    return 1;
}

/* The PutResult of a message that is stored. */
static PyObject *
answer_of(FastPath *self, const Objects *objects)
{
    PyObject *answer = NULL, *arguments = NULL;
    PyObject *fields = PyTuple_Pack(5, self->parts[STORED], objects->queue_offset, objects->physical_offset, empty_text,
                                    self->parts[STORE_HOST]);
    if (fields != NULL && (arguments = PyTuple_Pack(1, fields)) != NULL) {
        answer = make_tuple((PyTypeObject *)self->parts[RESULT_TYPE], arguments, NULL);
    }
    Py_XDECREF(fields);
    Py_XDECREF(arguments);
    return answer;
}

/* Let everybody see the frame, and tell the follower; 0 with an exception. */
static int
publish(FastPath *self, const Place *place, int64_t now, const Objects *objects)
{
    int failed = PyObject_SetAttr(place->next_offset, named.value, objects->next_queue_offset) |
                 PyObject_SetAttr(place->file, named.wrote_position, objects->end) |
                 PyObject_SetAttr(place->file, named.committed_position, objects->end) |
                 PyObject_SetAttr(place->file, named.store_timestamp, objects->time);
    if (now > place->last_timestamp) {
        failed |= PyObject_SetAttr(self->parts[STATE], named.last_timestamp, objects->time);
    }
    /* from here on code of Python's can run */
    if (!failed && is_attribute(self->parts[FOLLOWER], named.is_idle, Py_True)) {
        PyObject *woken = PyObject_CallNoArgs(self->parts[WAKE]);
        Py_XDECREF(woken);
        failed = woken == NULL;
    }
    return !failed;
}

/* Put an ordinary message: 1 if it is put, its answer in `answer`, which is NULL with an exception where the follower
   could not be told; else 0 with nothing done. */
static int
put_ordinary(FastPath *self, PyObject *message, int64_t now, PyObject **answer)
{
    Place place = {0};
    Objects objects = {0};
    int is_put = is_new_message(self, message) && is_free(self) && find_place(self, message, &place) &&
                 now >= place.last_timestamp && write_frame(self, message, &place, now, &objects);
    if (is_put) {
        *answer = publish(self, &place, now, &objects) ? answer_of(self, &objects) : NULL;
    } else {
        PyErr_Clear();
    }
    Py_XDECREF(place.window);
    release_objects(&objects);
    return is_put;
}

static PyObject *
FastPath_put(PyObject *object, PyObject *const *arguments, Py_ssize_t count)
{
    FastPath *self = (FastPath *)object;
    PyObject *answer;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "put takes a message and whether it is put as stored");
        return NULL;
    }
    if (arguments[1] == Py_False) {
        int64_t now = time_of(self->parts[CLOCK]);
        if (now == -1 && PyErr_Occurred()) {
            return NULL;
        }
        if (put_ordinary(self, arguments[0], now, &answer)) {
            return answer;
        }
    }
    return PyObject_CallFunctionObjArgs(self->parts[OTHERWISE], arguments[0], arguments[1], NULL);
}

/* ---- many messages */

/* Columns of numbers and of places in bytes: Frame and Span (store/columns/frame_columns.py). */
enum {
    SIZE, QUEUE_ID, FLAG, SYS_FLAG, QUEUE_OFFSET, BORN_TIMESTAMP, BORN_HOST, RECONSUME_TIMES, PREPARED, TOPIC,
    STORE_TIMESTAMP, STORED_HOST, COLUMNS
};
enum { BODY, PROPERTIES, SPANS };

/* Tables with a row for each message, and room for stored properties. */
typedef struct {
    Py_buffer columns, starts, ends, usual, text;
    Py_ssize_t rows;
} Tables;

static int64_t *
cell(Py_buffer *table, Py_ssize_t rows, int column, Py_ssize_t row)
{
    return (int64_t *)table->buf + column * rows + row;
}

/* The number that `key` has in `numbers`, the next one if it is new; -1 with an exception. */
static int64_t
number_of(PyObject *numbers, PyObject *key)
{
    PyObject *found = PyDict_GetItemWithError(numbers, key);
    if (found != NULL || PyErr_Occurred()) {
        return found == NULL ? -1 : PyLong_AsLongLong(found);
    }
    int64_t next = PyDict_Size(numbers);
    found = PyLong_FromLongLong(next);
    int failed = found == NULL || PyDict_SetItem(numbers, key, found) < 0;
    Py_XDECREF(found);
    return failed ? -1 : next;
}

typedef struct {
    unsigned char packed[HOST_SIZE];
    int64_t number; /* 0: none yet */
} LastHost;

/* The number of a host; most messages that follow each other come from one producer. */
static int64_t
number_of_host(PyObject *hosts, const unsigned char *packed, LastHost *last)
{
    if (last->number == 0 || memcmp(last->packed, packed, HOST_SIZE) != 0) {
        PyObject *key = PyBytes_FromStringAndSize((const char *)packed, HOST_SIZE);
        if (key == NULL) {
            return -1;
        }
        memcpy(last->packed, packed, HOST_SIZE);
        last->number = number_of(hosts, key);
        Py_DECREF(key);
    }
    return last->number;
}

/* Fill in the numbers of a row: 1, 0 for an unusual one, -1 with an exception. */
static int
fill_numbers(FastPath *self, PyObject *message, PyObject *topics, PyObject *hosts, LastHost *last, Tables *tables,
             Py_ssize_t row)
{
    Numbers numbers;
    unsigned char packed[HOST_SIZE];
    if (!is_new_message(self, message) || !pack_born_host(self, message, packed) ||
        !numbers_of(message, NO_TIME, &numbers)) {
        return 0;
    }
    int64_t topic = number_of(topics, PyTuple_GetItem(message, MESSAGE_TOPIC));
    int64_t host = number_of_host(hosts, packed, last);
    if (topic < 0 || host < 0) {
        return -1;
    }
    const int64_t values[COLUMNS] = {
        [QUEUE_ID] = numbers.queue_id, [FLAG] = numbers.flag, [SYS_FLAG] = numbers.sys_flag,
        [BORN_TIMESTAMP] = numbers.born_timestamp, [BORN_HOST] = host, [RECONSUME_TIMES] = numbers.reconsume_times,
        [PREPARED] = numbers.prepared, [TOPIC] = topic, [STORE_TIMESTAMP] = NO_TIME,
    };
    for (int column = 0; column < COLUMNS; column++) {
        *cell(&tables->columns, tables->rows, column, row) = values[column];
    }
    return 1;
}

/* Fill in the rows [begin, end): the first one that is not, which is `end`, or has a name of a property that is not
   known; or -1 - row for one whose properties do not fit into the room. -1 - end with an exception. The row `skipped`
   is unusual whatever it is. */
static Py_ssize_t
fill(FastPath *self, PyObject *messages, Py_ssize_t begin, Py_ssize_t end, Py_ssize_t skipped, PyObject *topics,
     PyObject *hosts, Tables *tables)
{
    LastHost last = {{0}, 0};
    int64_t used = begin ? *cell(&tables->ends, tables->rows, PROPERTIES, begin - 1) : 0;
    if (used < 0 || used > tables->text.len) {
        PyErr_SetString(PyExc_ValueError, "the properties before the first row do not lie in the room");
        return -1 - end;
    }
    for (Py_ssize_t row = begin; row < end; row++) {
        PyObject *message = PyTuple_GetItem(messages, row);
        int is_usual = row == skipped ? 0 : fill_numbers(self, message, topics, hosts, &last, tables, row);
        Py_ssize_t size = UNUSUAL;
        if (is_usual < 0) {
            return -1 - end;
        }
        if (is_usual) {
            size = write_properties(self, message, (char *)tables->text.buf + used, tables->text.len - used);
        }
        if (size == UNKNOWN) {
            return row;
        }
        if (size == TOO_LONG) {
            return -1 - row;
        }
        *cell(&tables->starts, tables->rows, PROPERTIES, row) = used;
        if (size == UNUSUAL) {
            ((char *)tables->usual.buf)[row] = 0;
        } else {
            PyObject *body = PyTuple_GetItem(message, MESSAGE_BODY);
            int64_t at = (int64_t)(intptr_t)PyBytes_AsString(body);
            *cell(&tables->starts, tables->rows, BODY, row) = at;
            *cell(&tables->ends, tables->rows, BODY, row) = at + PyBytes_Size(body);
            used += size;
        }
        *cell(&tables->ends, tables->rows, PROPERTIES, row) = used;
    }
    return end;
}

static PyObject *
FastPath_fill_rows(PyObject *object, PyObject *arguments)
{
    PyObject *messages, *topics, *hosts, *given[5], *answer = NULL;
    Py_ssize_t begin, end, skipped;
    Tables tables;
    Py_buffer *taken[5] = {&tables.columns, &tables.starts, &tables.ends, &tables.usual, &tables.text};
    int count = 0;
    if (!PyArg_ParseTuple(arguments, "O!nnnO!O!OOOOO", &PyTuple_Type, &messages, &begin, &end, &skipped, &PyDict_Type,
                          &topics, &PyDict_Type, &hosts, &given[0], &given[1], &given[2], &given[3], &given[4])) {
        return NULL;
    }
    Py_ssize_t rows = tables.rows = PyTuple_Size(messages);
    const Py_ssize_t sizes[5] = {COLUMNS * rows * 8, SPANS * rows * 8, SPANS * rows * 8, rows, -1};
    for (; count < 5; count++) {
        if (PyObject_GetBuffer(given[count], taken[count], PyBUF_WRITABLE) < 0) {
            goto done;
        }
        if (sizes[count] >= 0 && taken[count]->len != sizes[count]) {
            PyErr_SetString(PyExc_ValueError, "a table has not a row for each message");
            count++;
            goto done;
        }
    }
    if (begin < 0 || begin > end || end > rows) {
        PyErr_SetString(PyExc_ValueError, "there are no such rows");
        goto done;
    }
    Py_ssize_t reached = fill((FastPath *)object, messages, begin, end, skipped, topics, hosts, &tables);
    answer = PyErr_Occurred() ? NULL : PyLong_FromSsize_t(reached);
done:
    while (count > 0) {
        PyBuffer_Release(taken[--count]);
    }
    return answer;
}

/* ---- the module */

static PyObject *
FastPath_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    PyObject *parts;
    const char *store_host;
    Py_ssize_t size;
    long long largest_body, unusual_flags;
    unsigned long long crc;
    if (keywords != NULL || !PyArg_ParseTuple(arguments, "O!y#LLK", &PyTuple_Type, &parts, &store_host, &size,
                                              &largest_body, &unusual_flags, &crc)) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "FastPath takes no names of arguments");
        }
        return NULL;
    }
    if (PyTuple_Size(parts) != PARTS || size != HOST_SIZE) {
        PyErr_SetString(PyExc_ValueError, "these are not the parts of a fast path");
        return NULL;
    }
    FastPath *self = (FastPath *)((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self == NULL) {
        return NULL;
    }
    for (int part = 0; part < PARTS; part++) {
        self->parts[part] = Py_NewRef(PyTuple_GetItem(parts, part));
    }
    if (!PyDict_CheckExact(self->parts[TOPICS]) || !PyDict_CheckExact(self->parts[NAMES])) {
        PyErr_SetString(PyExc_TypeError, "known topics and names are dicts");
        Py_DECREF(self);
        return NULL;
    }
    memcpy(self->store_host, store_host, HOST_SIZE);
    self->largest_body = largest_body;
    self->unusual_flags = unusual_flags;
    self->crc = crc_function(crc);
    return (PyObject *)self;
}

static int
FastPath_traverse(PyObject *object, visitproc visit, void *arg)
{
    for (int part = 0; part < PARTS; part++) {
        Py_VISIT(((FastPath *)object)->parts[part]);
    }
    Py_VISIT(Py_TYPE(object));
    return 0;
}

static int
FastPath_clear(PyObject *object)
{
    for (int part = 0; part < PARTS; part++) {
        PyObject *held = ((FastPath *)object)->parts[part];
        /* never NULL: a method may still be called while a circle is taken apart */
        ((FastPath *)object)->parts[part] = Py_NewRef(Py_None);
        Py_XDECREF(held);
    }
    return 0;
}

static void
FastPath_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    for (int part = 0; part < PARTS; part++) {
        Py_XDECREF(((FastPath *)object)->parts[part]);
    }
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef FastPath_methods[] = {
    {"put", (PyCFunction)(void (*)(void))FastPath_put, METH_FASTCALL,
     "put(message, as_stored): put an ordinary message; whatever else it is, `otherwise` gets it."},
    {"fill_rows", FastPath_fill_rows, METH_VARARGS,
     "fill_rows(messages, begin, end, skipped, topics, hosts, columns, starts, ends, usual, text): see message_rows.py."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot FastPath_slots[] = {
    {Py_tp_new, FastPath_new},         {Py_tp_traverse, FastPath_traverse}, {Py_tp_clear, FastPath_clear},
    {Py_tp_dealloc, FastPath_dealloc}, {Py_tp_methods, FastPath_methods},   {0, NULL},
};

static PyType_Spec FastPath_spec = {
    "rmqctl.store.write.fast.fast_path.FastPath", sizeof(FastPath), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, FastPath_slots,
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "fast_path", "The fast path in compiled form.", -1, NULL, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC
PyInit_fast_path(void)
{
    static const struct {
        PyObject **place;
        const char *text;
    } texts[] = {
        {&named.window, "window"}, {&named.last_timestamp, "last_timestamp"}, {&named.wrote_position, "wrote_position"},
        {&named.committed_position, "committed_position"}, {&named.store_timestamp, "store_timestamp"},
        {&named.value, "value"}, {&named.is_idle, "is_idle"}, {&named.observer, "observer"}, {&empty_text, ""},
    };
    for (size_t number = 0; number < sizeof texts / sizeof *texts; number++) {
        *texts[number].place = PyUnicode_InternFromString(texts[number].text);
        if (*texts[number].place == NULL) {
            return NULL;
        }
    }
    make_crc_tables();
    make_tuple = (newfunc)PyType_GetSlot(&PyTuple_Type, Py_tp_new);
    PyObject *module = PyModule_Create(&definition), *type = PyType_FromSpec(&FastPath_spec);
    int failed = module == NULL || type == NULL || PyModule_AddObjectRef(module, "FastPath", type) < 0 ||
                 PyModule_AddStringConstant(module, "SOURCE", SOURCE) < 0;
    Py_XDECREF(type);
    if (failed) {
        Py_XDECREF(module);
        return NULL;
    }
    return module;
}
