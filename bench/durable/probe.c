/*
 * Asks each of a few brokers the same small question at a steady rate and counts how long the answers take.
 * A question goes out at each tick of an absolute clock, whether or not the last one was answered, so that a
 * broker that stands still for 50 ms has 50 late answers at 1 kHz and not one. Its own lateness in waking up
 * is counted too. Compiled and called by bench/durable/probe.py; the sockets are non-blocking.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>

#define SIZE 4096
#define OUTSTANDING 65536
#define MOST 8

typedef struct {
    int32_t fd;
    uint32_t *cells; /* how many answers took so many microseconds */
    uint64_t answered;
    uint64_t sent;
    uint64_t skipped; /* ticks without a question: too many were outstanding */
} Asked;

typedef struct {
    int32_t stop_fd; /* readable or closed: end */
    uint64_t period_ns;
    uint64_t last_wait_ns; /* for outstanding answers, after the end */
    const uint8_t *question;
    uint64_t question_size;
    const uint8_t *answer;
    uint64_t answer_size;
    uint64_t cells;
    uint32_t *late_cells; /* how many ticks were so many microseconds late */
    uint64_t ticks;
    uint64_t ticks_missed;
    uint64_t elapsed_ns;
    char error[256];
} Probe;

typedef struct {
    uint8_t bytes[SIZE];
    size_t held;
    uint64_t when[OUTSTANDING];
} State;

static State states[MOST];

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static int fail(Probe *probe, const char *text) {
    snprintf(probe->error, sizeof probe->error, "%s", text);
    return -1;
}

static void count(const Probe *probe, uint32_t *cells, uint64_t ns) {
    uint64_t us = ns / 1000;
    cells[us < probe->cells ? us : probe->cells - 1]++;
}

static int ask(Probe *probe, Asked *asked, State *state) {
    if (asked->sent - asked->answered >= OUTSTANDING) {
        asked->skipped++;
        return 0;
    }
    uint64_t now = clock_ns();
    ssize_t wrote = send(asked->fd, probe->question, probe->question_size, MSG_NOSIGNAL);
    if (wrote < 0 && (errno == EAGAIN || errno == EINTR)) {
        asked->skipped++;
        return 0;
    }
    if (wrote != (ssize_t)probe->question_size) return fail(probe, "a question could not be sent whole");
    state->when[asked->sent++ % OUTSTANDING] = now;
    return 0;
}

static int hear(Probe *probe, Asked *asked, State *state) {
    ssize_t got = recv(asked->fd, state->bytes + state->held, SIZE - state->held, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (got <= 0) return fail(probe, "a broker closed the connection");
    uint64_t now = clock_ns();
    state->held += (size_t)got;
    size_t at = 0;
    for (; state->held - at >= probe->answer_size; at += probe->answer_size) {
        if (memcmp(state->bytes + at, probe->answer, probe->answer_size) || asked->answered == asked->sent)
            return fail(probe, "something else than the answer came");
        count(probe, asked->cells, now - state->when[asked->answered++ % OUTSTANDING]);
    }
    state->held -= at;
    memmove(state->bytes, state->bytes + at, state->held);
    return 0;
}

static int outstanding(const Asked *asked, int brokers) {
    for (int i = 0; i < brokers; i++)
        if (asked[i].answered < asked[i].sent) return 1;
    return 0;
}

/* Waits until `until` at the latest; -1 is an error, 1 the wish to end. */
static int wait_until(Probe *probe, Asked *asked, int brokers, uint64_t until) {
    struct pollfd polled[MOST + 1];
    for (int i = 0; i < brokers; i++) polled[i] = (struct pollfd){asked[i].fd, POLLIN, 0};
    polled[brokers] = (struct pollfd){probe->stop_fd, POLLIN, 0};
    uint64_t now = clock_ns(), left = until > now ? until - now : 0;
    struct timespec timeout = {(time_t)(left / 1000000000ull), (long)(left % 1000000000ull)};
    int ready = ppoll(polled, (nfds_t)brokers + 1, &timeout, NULL);
    if (ready < 0) return errno == EINTR ? 0 : fail(probe, "ppoll failed");
    for (int i = 0; i < brokers; i++)
        if (polled[i].revents && hear(probe, &asked[i], &states[i])) return -1;
    return polled[brokers].revents ? 1 : 0;
}

int run_probe(Probe *probe, Asked *asked, int brokers) {
    if (brokers > MOST) return fail(probe, "too many brokers");
    memset(states, 0, sizeof states);
    prctl(PR_SET_TIMERSLACK, 1000);
    uint64_t start = clock_ns(), due = start + probe->period_ns;
    for (int ended = 0; !ended;) {
        ended = wait_until(probe, asked, brokers, due);
        if (ended < 0) return -1;
        uint64_t now = clock_ns();
        if (now < due) continue;
        count(probe, probe->late_cells, now - due);
        probe->ticks++;
        for (int i = 0; i < brokers; i++)
            if (ask(probe, &asked[i], &states[i])) return -1;
        due += probe->period_ns;
        for (; due <= now; due += probe->period_ns) probe->ticks_missed++;
    }
    probe->elapsed_ns = clock_ns() - start;
    probe->stop_fd = -1;
    uint64_t last = clock_ns() + probe->last_wait_ns;
    while (outstanding(asked, brokers) && clock_ns() < last)
        if (wait_until(probe, asked, brokers, last) < 0) return -1;
    return outstanding(asked, brokers) ? fail(probe, "an answer is missing") : 0;
}
