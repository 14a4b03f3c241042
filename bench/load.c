/*
 * The inner loop of the load generator: it publishes pre-built frames within a confirm window, and counts
 * confirms and deliveries by jumping from frame to frame. It shares the machine with the brokers that it
 * measures, so it must cost little: one poll, one read and one write per wake-up, nothing per message but a
 * time stamp and a histogram cell. Compiled and called by bench/native.py; bench/portable.py is its twin in
 * Python. The sockets are non-blocking and already past the handshake, confirm.select and basic.consume.
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define READ_SIZE (256 * 1024)
#define ACK_SIZE 21

typedef struct {
    /* what to do */
    int32_t publish_fd;
    int32_t consume_fd; /* -1: publish only */
    const uint8_t *frames; /* many messages of one size, sent round and round */
    uint64_t frames_size;
    uint64_t message_size;
    uint64_t body_size;
    uint64_t messages;
    uint64_t window;
    uint64_t ack_every;
    uint64_t limit_ns;   /* stop publishing after this long; 0: never */
    uint64_t stall_ns;   /* give up when nothing arrives for this long */
    uint64_t tags_used;  /* confirm and delivery tags used by earlier runs on the same channels */
    uint32_t *confirm_cells; /* how many confirms took so many microseconds */
    uint32_t *deliver_cells;
    uint64_t cells;
    /* what came of it */
    uint64_t sent;
    uint64_t confirmed;
    uint64_t nacked;
    uint64_t delivered;
    uint64_t acked;
    uint64_t elapsed_ns;
    uint64_t reads;
    uint64_t writes;
    uint64_t highest_cell;
    char error[256];
} Load;

typedef struct {
    int fd;
    uint8_t *bytes;
    size_t held;
} Input;

typedef struct {
    Load *load;
    uint64_t *sent_at; /* by message */
    uint8_t *single;   /* confirmed out of order, by message */
    uint64_t low;      /* all messages below are confirmed */
    uint64_t bytes_sent;
    uint64_t now;
    uint8_t *acks;
    size_t acks_held;
    size_t acks_room;
} Run;

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static uint32_t u32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static uint64_t u64(const uint8_t *p) { return (uint64_t)u32(p) << 32 | u32(p + 4); }

static void cell(Load *load, uint32_t *cells, uint64_t ns) {
    uint64_t us = ns / 1000;
    if (us >= load->cells) us = load->cells - 1;
    if (us > load->highest_cell) load->highest_cell = us;
    cells[us]++;
}

static int fail(Load *load, const char *text) {
    snprintf(load->error, sizeof load->error, "%s", text);
    return -1;
}

static int confirm(Run *run, uint64_t tag, int multiple, int negative) {
    Load *load = run->load;
    uint64_t begun = (run->bytes_sent + load->message_size - 1) / load->message_size;
    if (tag <= load->tags_used || tag - load->tags_used > begun)
        return fail(load, "a confirm of a tag that was never sent");
    uint64_t index = tag - load->tags_used - 1;
    uint64_t from = multiple ? run->low : index;
    for (uint64_t i = from; i <= index; i++) {
        if (i < run->low || run->single[i]) {
            if (multiple) continue;
            return fail(load, "a tag was confirmed twice");
        }
        cell(load, load->confirm_cells, run->now - run->sent_at[i]);
        load->confirmed++;
        if (negative) load->nacked++;
        if (!multiple) run->single[i] = 1;
    }
    if (multiple && index + 1 > run->low) run->low = index + 1;
    while (run->low < load->messages && run->single[run->low]) run->low++;
    return 0;
}

static int delivery(Run *run, const uint8_t *arguments, const uint8_t *end) {
    Load *load = run->load;
    const uint8_t *tag = arguments + 1 + arguments[0];
    if (tag + 8 > end) return fail(load, "a basic.deliver shorter than its fields");
    if (u64(tag) != load->tags_used + load->delivered + 1)
        return fail(load, "a delivery tag out of sequence");
    if (load->delivered >= (run->bytes_sent + load->message_size - 1) / load->message_size)
        return fail(load, "more messages were delivered than published");
    cell(load, load->deliver_cells, run->now - run->sent_at[load->delivered]);
    load->delivered++;
    return 0;
}

static int method(Run *run, const uint8_t *payload, uint32_t size) {
    Load *load = run->load;
    if (size < 4) return fail(load, "a method frame without a method");
    uint32_t id = u32(payload);
    if (id == (60u << 16 | 80) && size >= 13) return confirm(run, u64(payload + 4), payload[12] & 1, 0);
    if (id == (60u << 16 | 120) && size >= 13) return confirm(run, u64(payload + 4), payload[12] & 1, 1);
    if (id == (60u << 16 | 60) && size >= 5) return delivery(run, payload + 4, payload + size);
    snprintf(load->error, sizeof load->error, "unexpected method %u.%u", id >> 16, id & 0xffff);
    if ((id == (20u << 16 | 40) || id == (10u << 16 | 50)) && size >= 7 && size >= 7u + payload[6])
        snprintf(load->error, sizeof load->error, "closed by the broker: %.*s", payload[6], payload + 7);
    return -1;
}

static int frames(Run *run, Input *input) {
    Load *load = run->load;
    size_t at = 0;
    while (input->held - at >= 8) {
        const uint8_t *frame = input->bytes + at;
        size_t size = u32(frame + 3);
        if (size > READ_SIZE / 2) return fail(load, "a frame larger than was agreed");
        if (input->held - at < size + 8) break;
        if (frame[7 + size] != 0xCE) return fail(load, "a frame without its end octet");
        if (frame[0] == 1) {
            if (method(run, frame + 7, (uint32_t)size)) return -1;
        } else if (frame[0] == 2 && (size < 14 || u64(frame + 11) != load->body_size)) {
            return fail(load, "a body of another size than published");
        }
        at += size + 8;
    }
    input->held -= at;
    memmove(input->bytes, input->bytes + at, input->held);
    return 0;
}

static int receive(Run *run, Input *input) {
    ssize_t got = recv(input->fd, input->bytes + input->held, READ_SIZE - input->held, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) return fail(run->load, "the broker closed the connection");
    run->load->reads++;
    run->now = clock_ns();
    input->held += (size_t)got;
    return frames(run, input);
}

static uint64_t permitted(const Run *run) {
    const Load *load = run->load;
    uint64_t limit = load->confirmed + load->window;
    return (limit < load->messages ? limit : load->messages) * load->message_size;
}

static int publish(Run *run) {
    Load *load = run->load;
    uint64_t until = permitted(run);
    while (run->bytes_sent < until) {
        uint64_t offset = run->bytes_sent % load->frames_size;
        uint64_t chunk = until - run->bytes_sent;
        if (chunk > load->frames_size - offset) chunk = load->frames_size - offset;
        uint64_t begun = (run->bytes_sent + load->message_size - 1) / load->message_size;
        run->now = clock_ns();
        ssize_t wrote = send(load->publish_fd, load->frames + offset, chunk, MSG_NOSIGNAL);
        if (wrote < 0) {
            if (errno == EAGAIN || errno == EINTR) return 0;
            return fail(load, "the broker reset the publisher's connection");
        }
        load->writes++;
        run->bytes_sent += (uint64_t)wrote;
        uint64_t end = (run->bytes_sent + load->message_size - 1) / load->message_size;
        for (; begun < end; begun++) run->sent_at[begun] = run->now;
        if ((uint64_t)wrote < chunk) return 0;
    }
    return 0;
}

static void ack(Run *run, uint64_t upto) {
    uint8_t *p = run->acks + run->acks_held;
    uint64_t tag = run->load->tags_used + upto;
    memcpy(p, "\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50", 11);
    for (int i = 0; i < 8; i++) p[11 + i] = (uint8_t)(tag >> (56 - 8 * i));
    p[19] = 1;
    p[20] = 0xCE;
    run->acks_held += ACK_SIZE;
    run->load->acked = upto;
}

static int acknowledge(Run *run, int last) {
    Load *load = run->load;
    while (load->delivered - load->acked >= load->ack_every && run->acks_held + ACK_SIZE <= run->acks_room)
        ack(run, load->acked + load->ack_every);
    if (last && load->acked < load->delivered && run->acks_held + ACK_SIZE <= run->acks_room)
        ack(run, load->delivered);
    if (!run->acks_held) return 0;
    ssize_t wrote = send(load->consume_fd, run->acks, run->acks_held, MSG_NOSIGNAL);
    if (wrote < 0) {
        if (errno == EAGAIN || errno == EINTR) return 0;
        return fail(load, "the broker reset the consumer's connection");
    }
    load->writes++;
    run->acks_held -= (size_t)wrote;
    memmove(run->acks, run->acks + wrote, run->acks_held);
    return 0;
}

static int finished(const Run *run) {
    const Load *load = run->load;
    if (load->confirmed < load->messages) return 0;
    if (load->consume_fd < 0) return 1;
    return load->delivered >= load->messages && load->acked >= load->delivered && !run->acks_held;
}

static int loop(Run *run, Input *confirms, Input *deliveries) {
    Load *load = run->load;
    uint64_t start = clock_ns();
    while (!finished(run)) {
        if (load->limit_ns && clock_ns() - start > load->limit_ns)
            load->messages = (run->bytes_sent + load->message_size - 1) / load->message_size;
        if (publish(run)) return -1;
        if (load->consume_fd >= 0 && acknowledge(run, load->delivered >= load->messages)) return -1;
        if (finished(run)) break;
        struct pollfd polled[2] = {{load->publish_fd, POLLIN, 0}, {load->consume_fd, POLLIN, 0}};
        if (run->bytes_sent < permitted(run)) polled[0].events |= POLLOUT;
        if (run->acks_held) polled[1].events |= POLLOUT;
        int ready = poll(polled, load->consume_fd >= 0 ? 2 : 1, (int)(load->stall_ns / 1000000));
        if (ready == 0) {
            snprintf(load->error, sizeof load->error, "stalled: %llu sent, %llu confirmed, %llu delivered",
                     (unsigned long long)(run->bytes_sent / load->message_size),
                     (unsigned long long)load->confirmed, (unsigned long long)load->delivered);
            return -1;
        }
        if (polled[0].revents & ~POLLOUT && receive(run, confirms)) return -1;
        if (load->consume_fd >= 0 && polled[1].revents & ~POLLOUT && receive(run, deliveries)) return -1;
    }
    load->elapsed_ns = clock_ns() - start;
    load->sent = load->messages;
    return 0;
}

int run_load(Load *load) {
    Run run = {.load = load};
    Input confirms = {load->publish_fd, malloc(READ_SIZE), 0};
    Input deliveries = {load->consume_fd, malloc(READ_SIZE), 0};
    run.acks_room = ACK_SIZE * 4096;
    run.acks = malloc(run.acks_room);
    run.sent_at = calloc(load->messages + 1, sizeof *run.sent_at);
    run.single = calloc(load->messages + 1, 1);
    int result = -1;
    if (confirms.bytes && deliveries.bytes && run.acks && run.sent_at && run.single)
        result = loop(&run, &confirms, &deliveries);
    else
        fail(load, "out of memory");
    free(confirms.bytes);
    free(deliveries.bytes);
    free(run.acks);
    free(run.sent_at);
    free(run.single);
    return result;
}
