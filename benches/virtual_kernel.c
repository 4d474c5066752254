/* The kernel and the peer of an engine in virtual time, loaded before libc (LD_PRELOAD) into a
 * program as it is released. The engine's work takes no time: the clock leaps from one alarm or
 * line of stdin to the next, so the plan alone decides what the engine does, and in which batches.
 * Callgrind counts the loop between two waits, without the work of this file.
 *
 * A line of stdin begins with the instant, in nanoseconds, at which it is read. At `count NAME`,
 * callgrind writes the counts so far under this name. At `feed BLOCKS MESSAGES`, the publisher of
 * ZeroMQ begins to send so many blocks to each subscriber, 1 ms apart. The engine reads all others.
 *
 * The peer acknowledges at once, as the sink of the benches does, and forwards each message to all
 * subscribers, at the quality of service that both ask for. */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#define SOCKETS 32768
#define SECOND_NS 1000000000ull
#define MILLISECOND_NS 1000000ull
#define NEVER UINT64_MAX
#define RUN_TAG 20260101u
#define GREETING_BYTES 64

/* Bytes that wait: those before `at` are read. */
struct bytes {
    uint8_t *start;
    size_t at, len, room;
};

struct connection {
    int is_open, is_ready, was_greeted, is_subscribed;
    uint32_t interest;
    uint64_t token;
    struct bytes to_engine, from_engine;
    uint8_t qos;
    uint16_t last_id;
};

static struct connection connections[SOCKETS];
static int highest;
/* Connections with news, each once. */
static int ready[SOCKETS];
static size_t ready_count;
static struct bytes retained;
static uint64_t now_ns = 1000 * SECOND_NS, alarm_ns = NEVER, alarm_token;
static int alarm_fd = -1;
/* The rest of a feed. */
static uint64_t block_ns = NEVER;
static unsigned blocks, block_messages, sequence;
/* Lines of stdin, and how many of them the engine may read. */
static char *next_line, *released;
static pthread_mutex_t lines = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t line_released = PTHREAD_COND_INITIALIZER;

static void append(struct bytes *to, const void *from, size_t count) {
    if (to->at == to->len)
        to->at = to->len = 0;
    while (to->len + count > to->room)
        to->start = realloc(to->start, to->room = 2 * to->room + 256);
    memcpy(to->start + to->len, from, count);
    to->len += count;
}

/* Notes news of a connection. As with epoll's edges, the wait then gives the whole state. */
static void note(struct connection *of) {
    if (!of->is_ready)
        ready[ready_count++] = (int)(of - connections);
    of->is_ready = 1;
}

static void answer(struct connection *to, const void *bytes, size_t count) {
    append(&to->to_engine, bytes, count);
    note(to);
}

static struct connection *connection(int fd) {
    return fd >= 0 && fd < SOCKETS && connections[fd].is_open ? &connections[fd] : NULL;
}

/* MQTT 3.1.1 */

static size_t push_length(uint8_t *out, size_t length) {
    size_t count = 0;
    for (; length > 127; length >>= 7)
        out[count++] = (uint8_t)(length | 128);
    out[count++] = (uint8_t)length;
    return count;
}

static void forward(struct connection *to, uint8_t flags, const uint8_t *topic, size_t topic_bytes,
                    const uint8_t *payload, size_t payload_bytes) {
    uint8_t qos = (flags >> 1 & 3) < to->qos ? flags >> 1 & 3 : to->qos, front[5];
    front[0] = (uint8_t)(0x30 | qos << 1 | (flags & 1));
    size_t count = push_length(front + 1, topic_bytes + payload_bytes + (qos ? 2 : 0));
    answer(to, front, 1 + count);
    append(&to->to_engine, topic, topic_bytes);
    if (qos) {
        to->last_id = to->last_id % 65535 + 1;
        append(&to->to_engine, (uint8_t[]){(uint8_t)(to->last_id >> 8), (uint8_t)to->last_id}, 2);
    }
    append(&to->to_engine, payload, payload_bytes);
}

static void publish(struct connection *of, uint8_t flags, const uint8_t *body, size_t length) {
    size_t topic_bytes = 2 + (body[0] << 8 | body[1]), qos = flags >> 1 & 3;
    size_t head = topic_bytes + (qos ? 2 : 0);
    if (qos)
        answer(of, (uint8_t[]){qos == 1 ? 0x40 : 0x50, 2, body[head - 2], body[head - 1]}, 4);
    if (flags & 1) {
        append(&retained, (uint8_t[]){(uint8_t)(topic_bytes >> 8), (uint8_t)topic_bytes}, 2);
        append(&retained, body, topic_bytes);
        append(&retained, body + head, length - head);
    }
    for (int fd = 0; fd <= highest; fd++)
        if (connections[fd].is_open && connections[fd].is_subscribed)
            forward(&connections[fd], flags & 0xfe, body, topic_bytes, body + head, length - head);
}

static void subscribe(struct connection *of, const uint8_t *body, size_t length) {
    of->is_subscribed = 1;
    of->qos = body[length - 1];
    answer(of, (uint8_t[]){0x90, 3, body[0], body[1], of->qos}, 5);
    if (retained.len) {
        size_t topic_bytes = (size_t)retained.start[0] << 8 | retained.start[1];
        forward(of, 1, retained.start + 2, topic_bytes, retained.start + 2 + topic_bytes,
                retained.len - 2 - topic_bytes);
    }
}

/* Handles a packet; returns its length, 0 if it is not complete. */
static size_t mqtt(struct connection *of, const uint8_t *bytes, size_t count) {
    size_t length = 0, head = 1;
    do
        if (head == count)
            return 0;
        else
            length |= (size_t)(bytes[head] & 127) << 7 * (head - 1);
    while (bytes[head++] & 128);
    if (count < head + length)
        return 0;
    const uint8_t *body = bytes + head;
    switch (bytes[0] >> 4) {
    case 1: answer(of, (uint8_t[]){0x20, 2, 0, 0}, 4); break;
    case 3: publish(of, bytes[0] & 15, body, length); break;
    case 5: answer(of, (uint8_t[]){0x62, 2, body[0], body[1]}, 4); break;
    case 6: answer(of, (uint8_t[]){0x70, 2, body[0], body[1]}, 4); break;
    case 8: subscribe(of, body, length); break;
    case 12: answer(of, (uint8_t[]){0xd0, 0}, 2); break;
    }
    return head + length;
}

/* ZMTP 3.1 with the mechanism NULL */

static size_t zmtp(struct connection *of, const uint8_t *bytes, size_t count) {
    static const uint8_t READY[] = "\4\x19\5READY\13Socket-Type\0\0\0\3PUB";
    if (!of->was_greeted) {
        if (count < GREETING_BYTES)
            return 0;
        of->was_greeted = 1;
        answer(of, bytes, GREETING_BYTES);
        return GREETING_BYTES;
    }
    if (count < 2 || count < 2u + bytes[1])
        return 0;
    const uint8_t *name = bytes + 3;
    size_t length = bytes[1];
    if (!memcmp(name, "READY", 5))
        answer(of, READY, sizeof READY - 1);
    else if (!memcmp(name, "SUBSCRIBE", 9))
        of->is_subscribed = 1;
    else if (!memcmp(name, "PING", 4)) {
        answer(of, (uint8_t[]){4, (uint8_t)(length - 2), 4, 'P', 'O', 'N', 'G'}, 7);
        append(&of->to_engine, name + 6, length - 7);
    }
    return 2 + length;
}

/* Sends a block of stamped messages to all subscribers. */
static void send_block(void) {
    struct { uint8_t flags, size; uint32_t tag, sequence; uint64_t stream, intended, sent; }
        __attribute__((packed)) message = {0, 32, RUN_TAG, 0, 0, now_ns, now_ns};
    for (unsigned i = 0; i < block_messages; i++, sequence++)
        for (int fd = 0; fd <= highest; fd++)
            if (connections[fd].is_open && connections[fd].is_subscribed) {
                message.sequence = sequence;
                answer(&connections[fd], &message, sizeof message);
            }
    block_ns = --blocks ? now_ns + MILLISECOND_NS : NEVER;
}

/* The clock, stdin and the wait */

/* Instant of the next line; those of this file are done when they are due. */
static uint64_t line_ns(void) {
    return *next_line ? strtoull(next_line, NULL, 10) : NEVER;
}

/* Carries out the next line; returns 1 if the engine reads it. */
static int take_line(void) {
    char *text = strchr(next_line, ' ') + 1, *end = strchr(text, '\n') + 1, name[64];
    int is_engines = 0;
    if (sscanf(text, "count %63s", name) == 1)
        CALLGRIND_DUMP_STATS_AT(name);
    else if (sscanf(text, "feed %u %u", &blocks, &block_messages) == 2)
        block_ns = now_ns;
    else {
        pthread_mutex_lock(&lines);
        released = text;
        pthread_cond_signal(&line_released);
        pthread_mutex_unlock(&lines);
        is_engines = 1;
    }
    next_line = end;
    return is_engines;
}

/* Reads all of stdin, and releases the first line: the plan. */
static void read_stdin(void) {
    size_t room = 1 << 20, len = 0;
    ssize_t count;
    char *text = malloc(room);
    while ((count = syscall(SYS_read, 0, text + len, room - len - 1)) > 0)
        if ((len += (size_t)count) + 1 == room)
            text = realloc(text, room *= 2);
    text[len] = 0;
    next_line = text;
    take_line();
}

/* One line at most, when it is released. */
static ssize_t read_line(char *to, size_t count) {
    if (!next_line)
        read_stdin();
    pthread_mutex_lock(&lines);
    while (!released)
        pthread_cond_wait(&line_released, &lines);
    size_t length = (size_t)(strchr(released, '\n') + 1 - released);
    length = length < count ? length : count;
    memcpy(to, released, length);
    released = to[length - 1] == '\n' ? NULL : released + length;
    pthread_mutex_unlock(&lines);
    return (ssize_t)length;
}

static int take_ready(struct epoll_event *events, int room) {
    int count = 0, left = 0;
    for (size_t i = 0; i < ready_count; i++) {
        struct connection *of = &connections[ready[i]];
        if (count == room) {
            ready[left++] = ready[i];
            continue;
        }
        of->is_ready = 0;
        uint32_t state = EPOLLOUT | (of->to_engine.at < of->to_engine.len ? EPOLLIN : 0);
        if (of->is_open && state & of->interest)
            events[count++] = (struct epoll_event){state & of->interest, {.u64 = of->token}};
    }
    ready_count = (size_t)left;
    return count;
}

static int wait_virtually(int poll, struct epoll_event *events, int room, int timeout) {
    for (;;) {
        int count = take_ready(events, room);
        if (count || timeout == 0)
            return count;
        uint64_t at_ns = line_ns() < block_ns ? line_ns() : block_ns;
        if (alarm_ns < at_ns) {
            now_ns = alarm_ns > now_ns ? alarm_ns : now_ns;
            alarm_ns = NEVER;
            *events = (struct epoll_event){EPOLLIN, {.u64 = alarm_token}};
            return 1;
        }
        now_ns = at_ns;
        if (block_ns == now_ns)
            send_block();
        else if (take_line())
            return (int)syscall(SYS_epoll_wait, poll, events, room, -1);
    }
}

/* The calls of the engine. The loop's thread is the one that waits; nothing else is counted. */

static __thread int is_loop;

#define UNCOUNTED(type, call)                                                                      \
    do {                                                                                           \
        if (is_loop)                                                                               \
            CALLGRIND_TOGGLE_COLLECT;                                                              \
        type result = call;                                                                        \
        if (is_loop)                                                                               \
            CALLGRIND_TOGGLE_COLLECT;                                                              \
        return result;                                                                             \
    } while (0)

int epoll_wait(int poll, struct epoll_event *events, int room, int timeout) {
    if (is_loop)
        CALLGRIND_TOGGLE_COLLECT;
    int count = wait_virtually(poll, events, room, timeout);
    is_loop = 1;
    CALLGRIND_TOGGLE_COLLECT;
    return count;
}

static int control(int poll, int operation, int fd, struct epoll_event *event) {
    struct connection *of = connection(fd);
    if (fd == alarm_fd)
        alarm_token = event->data.u64;
    if (!of)
        return (int)syscall(SYS_epoll_ctl, poll, operation, fd, event);
    if (event) {
        of->token = event->data.u64;
        of->interest = event->events;
        note(of);
    }
    return 0;
}

int epoll_ctl(int poll, int operation, int fd, struct epoll_event *event) {
    UNCOUNTED(int, control(poll, operation, fd, event));
}

int timerfd_create(int clock, int flags) {
    return alarm_fd = (int)syscall(SYS_timerfd_create, clock, flags);
}

int timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *before) {
    (void)fd, (void)flags, (void)before;
    alarm_ns = (uint64_t)at->it_value.tv_sec * SECOND_NS + (uint64_t)at->it_value.tv_nsec;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    if (clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, time);
    *time = (struct timespec){(time_t)(now_ns / SECOND_NS), (long)(now_ns % SECOND_NS)};
    return 0;
}

int connect(int fd, const struct sockaddr *to, socklen_t length) {
    (void)to, (void)length;
    if (fd >= SOCKETS)
        abort();
    highest = fd > highest ? fd : highest;
    connections[fd] = (struct connection){.is_open = 1, .is_ready = connections[fd].is_ready};
    errno = EINPROGRESS;
    return -1;
}

static ssize_t take(struct connection *of, const uint8_t *bytes, size_t count) {
    static size_t (*packet)(struct connection *, const uint8_t *, size_t);
    if (!packet)
        packet = getenv("VIRTUAL_ZMTP") ? zmtp : mqtt;
    struct bytes *from = &of->from_engine;
    append(from, bytes, count);
    for (size_t length; (length = packet(of, from->start + from->at, from->len - from->at));)
        from->at += length;
    return (ssize_t)count;
}

static ssize_t give(struct connection *of, uint8_t *to, size_t room) {
    struct bytes *from = &of->to_engine;
    size_t count = from->len - from->at;
    if (!count) {
        errno = EAGAIN;
        return -1;
    }
    count = count < room ? count : room;
    memcpy(to, from->start + from->at, count);
    from->at += count;
    return (ssize_t)count;
}

ssize_t send(int fd, const void *bytes, size_t count, int flags) {
    (void)flags;
    UNCOUNTED(ssize_t, take(&connections[fd], bytes, count));
}

ssize_t recv(int fd, void *to, size_t room, int flags) {
    (void)flags;
    UNCOUNTED(ssize_t, give(&connections[fd], to, room));
}

ssize_t read(int fd, void *to, size_t count) {
    return fd == 0 ? read_line(to, count) : syscall(SYS_read, fd, to, count);
}

static int forget(int fd) {
    struct connection *of = connection(fd);
    if (of) {
        free(of->to_engine.start);
        free(of->from_engine.start);
        *of = (struct connection){.is_ready = of->is_ready};
    }
    return (int)syscall(SYS_close, fd);
}

int close(int fd) {
    UNCOUNTED(int, forget(fd));
}
