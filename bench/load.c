/*
 * The inner loop of the load generator: it publishes pre-built frames within a confirm window, and counts
 * confirms and deliveries by jumping from frame to frame. It shares the machine with the brokers that it
 * measures, so it must cost little: one poll, one read and one write per wake-up, nothing per message but a
 * time stamp and a histogram cell. With `content` it also stamps each body with the number of its message,
 * and compares what is delivered with what was published. Compiled and called by bench/native.py;
 * bench/portable.py is its twin in Python. The sockets are non-blocking and already past the handshake,
 * confirm.select and basic.consume; with `amqp10`, past the attach of a sender and of a receiver.
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
#define TRANSFER_ID 16  /* where a pre-built transfer has its delivery id, */
#define TRANSFER_TAG 22 /* and its delivery tag of 8 octets: see bench/amqp10_wire.py */
#define ACK_SIZE 72 /* the most that an ack takes: in AMQP 1.0 a disposition and a flow */

typedef struct {
    /* what to do */
    int32_t publish_fd;
    int32_t consume_fd; /* -1: publish only */
    uint8_t *frames;       /* many messages, sent round and round */
    const uint64_t *ends;  /* where each of them ends in `frames` */
    uint64_t count;        /* how many these are */
    const uint8_t *content; /* what follows the number in each body; NULL: bodies are sent and taken as they are */
    uint64_t streams;      /* with content: message i goes to queue i % streams, and each queue keeps its order */
    uint64_t fanout;       /* with content: copies of each message, told apart by consumer tags 0, 1, 2 ...; else 1 */
    uint64_t messages;
    uint64_t window;
    uint64_t ack_every;
    uint64_t limit_ns;   /* stop publishing after this long; 0: never */
    uint64_t stall_ns;   /* give up when nothing arrives for this long */
    uint64_t tags_used;  /* confirm tags used by earlier runs on the same channel */
    uint64_t deliveries_used; /* the same for delivery tags */
    uint64_t published;  /* messages that an earlier run published, and this one only consumes */
    uint64_t amqp10;     /* messages are transfers of AMQP 1.0 in one frame each; needs `content` */
    const uint64_t *bodies; /* amqp10: where each body begins in `frames`, up to the message's end */
    const uint64_t *bare;   /* amqp10: where each bare message begins, which is to be delivered as it is */
    uint64_t prefetch;   /* amqp10: link credit of the receiver */
    uint64_t credit;     /* amqp10, kept for the next run: transfers that the broker permits on this link so far */
    uint64_t session_credit; /* the same of the session's window */
    uint64_t first_id;   /* the same: delivery id of the link's first delivery; UINT64_MAX: there was none */
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
    uint64_t at;       /* the first message that is not wholly written */
    uint64_t partial;  /* octets of it that are */
    uint64_t stamped;  /* messages below have their number in their body */
    uint64_t now;
    Input confirms, deliveries;
    int done;
    uint64_t renewed;        /* amqp10: deliveries, of all runs, when the receiver last gave credit */
    /* the delivery that is being read, with content */
    uint64_t *next;    /* by stream: how many came */
    uint64_t stream;
    uint64_t index;
    uint8_t *header;
    uint64_t header_size;
    uint64_t body_size;
    uint64_t body_at;
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

/* Messages of which at least one octet is written. */
static uint64_t begun(const Run *run) { return run->at + (run->partial > 0); }

static uint64_t start_of(const Load *load, uint64_t slot) { return slot ? load->ends[slot - 1] : 0; }

/* The content header frame of a pre-built message: it follows the method frame. */
static const uint8_t *header_of(const Load *load, uint64_t slot) {
    const uint8_t *method = load->frames + start_of(load, slot);
    return method + u32(method + 3) + 8;
}

static int confirm(Run *run, uint64_t tag, int multiple, int negative) {
    Load *load = run->load;
    if (tag <= load->tags_used || tag - load->tags_used > begun(run))
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
    if (tag + 9 > end) return fail(load, "a basic.deliver shorter than its fields");
    if (u64(tag) != load->deliveries_used + load->delivered + 1)
        return fail(load, "a delivery tag out of sequence");
    if (load->delivered >= begun(run) * load->fanout)
        return fail(load, "more messages were delivered than published");
    if (load->content) {
        if (tag[8]) return fail(load, "a message was delivered twice: it is marked as redelivered");
        run->stream = 0;
        for (int i = 0; i < arguments[0]; i++) run->stream = run->stream * 10 + (uint64_t)(arguments[1 + i] - '0');
        if (load->fanout > 1 && run->stream >= load->fanout) return fail(load, "a consumer tag of nobody");
        run->header_size = 0;
    } else {
        cell(load, load->deliver_cells, run->now - run->sent_at[load->delivered]);
    }
    return 0;
}

/* A delivered content header: its size at least, or kept until the body says which message it is of. */
static int header(Run *run, const uint8_t *payload, uint64_t size) {
    Load *load = run->load;
    if (size < 14) return fail(load, "a content header shorter than its fields");
    run->body_size = u64(payload + 4);
    run->body_at = 0;
    if (!load->content) {
        const uint8_t *sent = header_of(load, load->delivered % load->count);
        if (run->body_size != u64(sent + 11)) return fail(load, "a body of another size than published");
        if (!run->body_size) load->delivered++;
        return 0;
    }
    memcpy(run->header, payload, size);
    run->header_size = size;
    return 0;
}

/* The number in a body says which message it is of: its turn, its header, and where it belongs. */
static int identify(Run *run, const uint8_t *payload, uint64_t size) {
    Load *load = run->load;
    if (size < 8 || !run->header_size) return fail(load, "a body without its number");
    run->index = u64(payload);
    if (run->index >= begun(run)) return fail(load, "a message that was never published");
    uint64_t stream = load->fanout > 1 ? run->stream : run->index % load->streams;
    uint64_t due = load->fanout > 1 ? run->next[stream] : stream + run->next[stream] * load->streams;
    if (run->index != due) {
        snprintf(load->error, sizeof load->error, "message %llu came where %llu was due",
                 (unsigned long long)run->index, (unsigned long long)due);
        return -1;
    }
    run->next[stream]++;
    const uint8_t *sent = header_of(load, run->index % load->count);
    if (run->header_size != u32(sent + 3) || memcmp(run->header, sent + 7, run->header_size))
        return fail(load, "a message has other properties than it was published with");
    cell(load, load->deliver_cells, run->now - run->sent_at[run->index]);
    return 0;
}

/* A message counts as delivered once all of its body is here. */
static int body(Run *run, const uint8_t *payload, uint64_t size) {
    Load *load = run->load;
    if (run->body_at + size > run->body_size) return fail(load, "a body longer than its header says");
    uint64_t skip = 0;
    if (load->content && !run->body_at) {
        if (identify(run, payload, size)) return -1;
        skip = 8;
    }
    if (load->content && memcmp(payload + skip, load->content + run->body_at + skip, size - skip))
        return fail(load, "a message has another content than it was published with");
    run->body_at += size;
    if (run->body_at == run->body_size) load->delivered++;
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
        } else if (frame[0] == 2) {
            if (header(run, frame + 7, size)) return -1;
        } else if (frame[0] == 3) {
            if (body(run, frame + 7, size)) return -1;
        }
        at += size + 8;
    }
    input->held -= at;
    memmove(input->bytes, input->bytes + at, input->held);
    return 0;
}

/* The next value of a list in AMQP 1.0: an unsigned number or a truth value, or else `otherwise`. */
static uint64_t number(const uint8_t **at, const uint8_t *end, uint64_t otherwise) {
    const uint8_t *p = *at;
    if (p >= end) return otherwise;
    uint64_t value = otherwise;
    size_t size = *p >> 4 == 4 ? 0 : *p >> 4 == 5 ? 1 : *p >> 4 == 6 ? 2 : *p >> 4 == 7 ? 4 : *p >> 4 == 8 ? 8 : 0;
    size_t left = (size_t)(end - p);
    if (*p == 0xa0 && left > 1) size = 1u + p[1];
    if (*p == 0x00 && left > 3) size = 3; /* described: its value is not of interest */
    if (size + 1 > left) {
        *at = end;
        return otherwise;
    }
    if (*p == 0x41) value = 1;
    if (*p == 0x42 || *p == 0x43 || *p == 0x44) value = 0;
    if (*p == 0x52 || *p == 0x53 || *p == 0x50 || *p == 0x56) value = p[1];
    if (*p == 0x70) value = u32(p + 1);
    if (*p == 0x80) value = u64(p + 1);
    *at = p + 1 + size;
    return value;
}

/* The list or map at `*at`: its values, and behind it. NULL: there is none. */
static const uint8_t *values(const uint8_t **at, const uint8_t *end, const uint8_t **values_end) {
    const uint8_t *p = *at;
    size_t left = (size_t)(end - p);
    if (left >= 1 && *p == 0x45) return *at = *values_end = p + 1;
    size_t wide = left >= 3 && *p >> 4 == 0xc ? 1 : left >= 9 && *p >> 4 == 0xd ? 4 : 0;
    size_t size = wide == 1 ? p[1] : wide == 4 ? u32(p + 1) : 0;
    if (!wide || size < wide || size > left - 1 - wide) return NULL;
    *at = *values_end = p + 1 + wide + size;
    return p + 1 + 2 * wide;
}

/* Outcomes of a range of transfers. Others than `accepted` count as nacks. */
static int disposition10(Run *run, const uint8_t *at, const uint8_t *end) {
    Load *load = run->load;
    if (!number(&at, end, 0)) return fail(load, "a disposition by a sender");
    uint64_t first = number(&at, end, UINT64_MAX), last = number(&at, end, first);
    uint64_t settled = number(&at, end, 0);
    if (!settled) return fail(load, "an outcome that the broker did not settle");
    if (at + 3 > end || at[0] != 0 || at[1] != 0x53) return fail(load, "a disposition without an outcome");
    if (first == UINT64_MAX || last < first || last >= load->tags_used + begun(run))
        return fail(load, "a disposition of a range that was never sent");
    int range = last > first;
    /* RabbitMQ's ranges may begin with what it settled before, as its `multiple` does. */
    if (range && first < load->tags_used + run->low) first = load->tags_used + run->low;
    for (uint64_t id = first; id <= last; id++) {
        if (range && run->single[id - load->tags_used]) continue;
        if (confirm(run, id + 1, 0, at[2] != 0x24)) return -1;
    }
    return 0;
}

/* The sections of a delivered message: its number, and then all of the bare message as it was sent. */
static int message10(Run *run, const uint8_t *at, const uint8_t *end) {
    Load *load = run->load;
    const uint8_t *bare = NULL, *inner;
    while (at + 3 < end && at[0] == 0 && at[1] == 0x53 && at[2] != 0x75) {
        if (!bare && at[2] >= 0x73) bare = at;
        at += 3;
        if (!values(&at, end, &inner)) return fail(load, "a section that is neither list nor map");
    }
    if (!bare) bare = at;
    size_t wide = at + 5 < end && at[3] == 0xb0 ? 4 : 1;
    if (at + 4 + wide + 8 > end || at[2] != 0x75) return fail(load, "a message without its data");
    run->index = u64(at + 4 + wide);
    if (run->index >= begun(run)) return fail(load, "a message that was never published");
    if (run->index != load->delivered) {
        snprintf(load->error, sizeof load->error, "message %llu came where %llu was due",
                 (unsigned long long)run->index, (unsigned long long)load->delivered);
        return -1;
    }
    uint64_t slot = run->index % load->count;
    uint64_t due = load->bare[slot], body = load->bodies[slot];
    if ((uint64_t)(end - bare) != load->ends[slot] - due || memcmp(bare, load->frames + due, body - due))
        return fail(load, "a message has other properties than it was published with");
    const uint8_t *rest = bare + (body - due) + 8;
    if (memcmp(rest, load->content + 8, (size_t)(end - rest)))
        return fail(load, "a message has another content than it was published with");
    cell(load, load->deliver_cells, run->now - run->sent_at[run->index]);
    load->delivered++;
    return 0;
}

static int transfer10(Run *run, const uint8_t *at, const uint8_t *end, const uint8_t *frame_end) {
    Load *load = run->load;
    number(&at, end, 0);
    uint64_t id = number(&at, end, UINT64_MAX);
    number(&at, end, 0); /* delivery-tag */
    number(&at, end, 0); /* message-format */
    uint64_t settled = number(&at, end, 0), more = number(&at, end, 0);
    if (settled || more) return fail(load, "a transfer that is settled, or not a whole message");
    if (load->first_id == UINT64_MAX) load->first_id = id;
    if (id != load->first_id + load->deliveries_used + load->delivered) return fail(load, "a delivery id out of sequence");
    return message10(run, end, frame_end);
}

/* New credit of the link, if the flow is of one, and of the session's window. */
static void flow10(Run *run, const uint8_t *at, const uint8_t *end) {
    Load *load = run->load;
    uint64_t next = number(&at, end, 0), window = number(&at, end, 0);
    number(&at, end, 0);
    number(&at, end, 0);
    uint64_t handle = number(&at, end, UINT64_MAX), count = number(&at, end, 0);
    uint64_t credit = number(&at, end, UINT64_MAX);
    load->session_credit = next + window;
    if (handle != UINT64_MAX && credit != UINT64_MAX) load->credit = count + credit;
}

static int frames10(Run *run, Input *input) {
    Load *load = run->load;
    size_t at = 0;
    while (input->held - at >= 8) {
        const uint8_t *frame = input->bytes + at;
        size_t size = u32(frame);
        if (size < 8 || size > READ_SIZE / 2) return fail(load, "a frame of a size that was not agreed");
        if (input->held - at < size) break;
        at += size;
        const uint8_t *list = frame + 4u * frame[4] + 3, *end = frame + size, *list_end;
        if (list > end) continue; /* an empty frame is a heartbeat */
        const uint8_t *fields = values(&list, end, &list_end);
        int kind = (frame + 4u * frame[4])[2];
        if (!fields) return fail(load, "a performative that is not a list");
        if (kind == 0x13 && input == &run->confirms) flow10(run, fields, list_end);
        if (kind == 0x15 && input == &run->confirms && disposition10(run, fields, list_end)) return -1;
        if (kind == 0x14 && transfer10(run, fields, list_end, end)) return -1;
        if (kind > 0x15) return fail(load, "the broker ended the link, the session or the connection");
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
    return run->load->amqp10 ? frames10(run, input) : frames(run, input);
}

/* Messages that may be written: the end of the confirm window. */
static uint64_t permitted(const Run *run) {
    const Load *load = run->load;
    uint64_t limit = load->confirmed + load->window;
    if (load->amqp10 && limit > load->credit - load->tags_used) limit = load->credit - load->tags_used;
    if (load->amqp10 && limit > load->session_credit - load->tags_used)
        limit = load->session_credit - load->tags_used;
    return limit < load->messages ? limit : load->messages;
}

static void put(uint8_t *p, uint64_t value, int octets) {
    for (int i = 0; i < octets; i++) p[i] = (uint8_t)(value >> (8 * (octets - 1 - i)));
}

static void stamp(Run *run, uint64_t until) {
    Load *load = run->load;
    for (uint64_t i = run->stamped > run->at ? run->stamped : run->at; i < until; i++) {
        if (load->amqp10) {
            uint8_t *transfer = load->frames + start_of(load, i % load->count);
            put(transfer + TRANSFER_ID, load->tags_used + i, 4);
            put(transfer + TRANSFER_TAG, load->tags_used + i, 8);
            put(load->frames + load->bodies[i % load->count], i, 8);
            continue;
        }
        const uint8_t *frame = header_of(load, i % load->count);
        uint8_t *body = load->frames + (frame - load->frames) + u32(frame + 3) + 8 + 7;
        put(body, i, 8);
    }
    run->stamped = until;
}

static int publish(Run *run) {
    Load *load = run->load;
    uint64_t until = permitted(run);
    while (run->at < until) {
        uint64_t slot = run->at % load->count;
        uint64_t last = until - run->at < load->count - slot ? slot + until - run->at : load->count;
        uint64_t offset = start_of(load, slot) + run->partial;
        uint64_t chunk = load->ends[last - 1] - offset;
        if (load->content && run->at + last - slot > run->stamped) stamp(run, run->at + last - slot);
        uint64_t first = begun(run);
        run->now = clock_ns();
        ssize_t wrote = send(load->publish_fd, load->frames + offset, chunk, MSG_NOSIGNAL);
        if (wrote < 0) {
            if (errno == EAGAIN || errno == EINTR) return 0;
            return fail(load, "the broker reset the publisher's connection");
        }
        load->writes++;
        for (run->partial += (uint64_t)wrote; slot < last; slot++, run->at++) {
            uint64_t size = load->ends[slot] - start_of(load, slot);
            if (run->partial < size) break;
            run->partial -= size;
        }
        for (uint64_t end = begun(run); first < end; first++) run->sent_at[first] = run->now;
        if ((uint64_t)wrote < chunk) return 0;
    }
    return 0;
}

/* A disposition that accepts and settles all up to there, and new credit once half of it is used. */
static void accept_deliveries(Run *run, uint64_t upto) {
    Load *load = run->load;
    uint64_t first = load->first_id + load->deliveries_used;
    uint8_t *p = run->acks + run->acks_held;
    memcpy(p, "\0\0\0\x1e\2\0\0\0\0\x53\x15\xc0\x11\5\x41\x70", 16);
    put(p + 16, first + load->acked, 4);
    p[20] = 0x70;
    put(p + 21, first + upto - 1, 4);
    memcpy(p + 25, "\x41\0\x53\x24\x45", 5);
    run->acks_held += 30;
    if (upto < load->messages && load->deliveries_used + upto - run->renewed < (load->prefetch + 1) / 2) return;
    run->renewed = load->deliveries_used + upto;
    p += 30;
    memcpy(p, "\0\0\0\x29\2\0\0\0\0\x53\x13\xc0\x1c\7\x70", 15);
    put(p + 15, first + load->delivered, 4);
    memcpy(p + 19, "\x70\x7f\xff\xff\xff\x43\x70\x7f\xff\xff\xff\x43\x70", 13);
    put(p + 32, run->renewed, 4);
    p[36] = 0x70;
    put(p + 37, load->prefetch, 4);
    run->acks_held += 41;
}

static void ack(Run *run, uint64_t upto) {
    uint8_t *p = run->acks + run->acks_held;
    if (run->load->amqp10) {
        accept_deliveries(run, upto);
        run->load->acked = upto;
        return;
    }
    memcpy(p, "\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50", 11);
    put(p + 11, run->load->deliveries_used + upto, 8);
    p[19] = run->load->ack_every > 1;
    p[20] = 0xCE;
    run->acks_held += 21;
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
    return load->delivered >= load->messages * load->fanout && load->acked >= load->delivered && !run->acks_held;
}

/* Write what may be written now. */
static int act(Run *run) {
    Load *load = run->load;
    if (publish(run)) return -1;
    int all = load->delivered >= load->messages * load->fanout;
    return load->consume_fd >= 0 ? acknowledge(run, all) : 0;
}

static int stalled(Run *run) {
    Load *load = run->load;
    snprintf(load->error, sizeof load->error, "stalled: %llu sent, %llu confirmed, %llu delivered",
             (unsigned long long)run->at, (unsigned long long)load->confirmed,
             (unsigned long long)load->delivered);
    return -1;
}

/* One step of all loads: act, wait for what arrives, read it. 1: all are finished. */
static int step(Run *runs, int count, struct pollfd *polled) {
    int unfinished = -1;
    for (int i = 0; i < count; i++) {
        Run *run = &runs[i];
        if (!run->done && act(run)) return -1;
        run->done = run->done || finished(run);
        if (!run->done) unfinished = i;
        polled[2 * i] = (struct pollfd){run->done ? -1 : run->load->publish_fd, POLLIN, 0};
        polled[2 * i + 1] = (struct pollfd){run->done ? -1 : run->load->consume_fd, POLLIN, 0};
        if (run->at < permitted(run)) polled[2 * i].events |= POLLOUT;
        if (run->acks_held) polled[2 * i + 1].events |= POLLOUT;
    }
    if (unfinished < 0) return 1;
    int ready = poll(polled, (nfds_t)(2 * count), (int)(runs[0].load->stall_ns / 1000000));
    if (ready == 0) return stalled(&runs[unfinished]);
    for (int i = 0; i < count; i++) {
        if (polled[2 * i].revents & ~POLLOUT && receive(&runs[i], &runs[i].confirms)) return -1;
        if (polled[2 * i + 1].revents & ~POLLOUT && receive(&runs[i], &runs[i].deliveries)) return -1;
    }
    return 0;
}

static int loop(Run *runs, int count, struct pollfd *polled) {
    uint64_t start = clock_ns();
    int state = 0;
    while (!state) {
        for (int i = 0; i < count; i++) {
            Load *load = runs[i].load;
            if (load->limit_ns && !runs[i].done && clock_ns() - start > load->limit_ns)
                load->messages = begun(&runs[i]);
        }
        state = step(runs, count, polled);
    }
    for (int i = 0; i < count; i++) {
        runs[i].load->elapsed_ns = clock_ns() - start;
        runs[i].load->sent = runs[i].load->messages;
    }
    return state < 0 ? -1 : 0;
}

static int prepare(Run *run, Load *load) {
    run->load = load;
    run->acks_room = ACK_SIZE * 4096;
    run->acks = malloc(run->acks_room);
    run->confirms = (Input){load->publish_fd, malloc(READ_SIZE), 0};
    run->deliveries = (Input){load->consume_fd, malloc(READ_SIZE), 0};
    run->sent_at = calloc(load->messages + 1, sizeof *run->sent_at);
    run->single = calloc(load->messages + 1, 1);
    run->next = calloc(load->streams > load->fanout ? load->streams : load->fanout, sizeof *run->next);
    run->header = malloc(READ_SIZE);
    run->at = run->low = run->stamped = load->confirmed = load->published;
    run->renewed = load->deliveries_used;
    if (run->confirms.bytes && run->deliveries.bytes && run->acks && run->sent_at && run->single && run->next &&
        run->header)
        return 0;
    return fail(load, "out of memory");
}

static void discard(Run *run) {
    free(run->confirms.bytes);
    free(run->deliveries.bytes);
    free(run->acks);
    free(run->sent_at);
    free(run->single);
    free(run->next);
    free(run->header);
}

/* Run loads side by side, each over sockets of its own. -1: one failed, and its `error` says why. */
int run_loads(Load *loads, int count) {
    Run *runs = calloc((size_t)count, sizeof *runs);
    struct pollfd *polled = calloc(2 * (size_t)count, sizeof *polled);
    int result = runs && polled ? 0 : fail(&loads[0], "out of memory");
    for (int i = 0; !result && i < count; i++) result = prepare(&runs[i], &loads[i]);
    if (!result) result = loop(runs, count, polled);
    for (int i = 0; runs && i < count; i++) discard(&runs[i]);
    free(polled);
    free(runs);
    return result;
}
