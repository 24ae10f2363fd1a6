// Programs to be followed instruction by instruction: one kind of work each, for as long as asked.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long counted;
static volatile int done;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

// A loop without a call.
__attribute__((noinline)) static void spin(void) {
    for (int i = 0; i < 1000; i++)
        counted++;
}

__attribute__((noinline)) static unsigned fib(unsigned n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

// Three system calls of known results a turn: -1 EBADF, the pid, a byte from /dev/zero.
__attribute__((noinline)) static void calls(int zero) {
    char byte;
    close(-1);
    syscall(SYS_getppid);
    if (read(zero, &byte, 1) == 1)
        counted++;
}

// Deeper and deeper, and back.
__attribute__((noinline)) static unsigned deep(unsigned n) {
    return n == 0 ? 1 : deep(n - 1) + 1;
}

static inline __attribute__((always_inline)) void inlined(void) {
    counted += 3;
}

__attribute__((noinline)) static void outer(void) {
    inlined();
    inlined();
}

static void on_signal(int n) {
    counted += n;
}

static void *sender(void *main_thread) {
    while (!done) {
        pthread_kill(*(pthread_t *)main_thread, SIGUSR1);
        usleep(300);
    }
    return NULL;
}

int main(int argc, char **argv) {
    const char *kind = argc > 1 ? argv[1] : "spin";
    double until = now() + (argc > 2 ? atof(argv[2]) : 5);
    int zero = open("/dev/zero", O_RDONLY);
    pthread_t self = pthread_self(), other;
    setlinebuf(stdout);
    if (!strcmp(kind, "signals")) {
        signal(SIGUSR1, on_signal);
        pthread_create(&other, NULL, sender, &self);
    }
    printf("begins\n");
    while (now() < until) {
        if (!strcmp(kind, "fib"))
            counted += fib(8);
        else if (!strcmp(kind, "calls"))
            for (int i = 0; i < 50; i++)
                calls(zero);
        else if (!strcmp(kind, "deep"))
            counted += deep(400);
        else if (!strcmp(kind, "inlined"))
            for (int i = 0; i < 100; i++)
                outer();
        else if (!strcmp(kind, "nap"))
            usleep(20000);
        else if (!strcmp(kind, "yield"))
            sched_yield();
        else
            spin();
    }
    done = 1;
    if (fib(20) != 6765 || deep(100) != 101)
        return 3;
    printf("ends\n");
    return 0;
}
