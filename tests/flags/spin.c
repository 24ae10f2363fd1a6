// spin VARIANT SECONDS: the main thread asks a flag again and again, until somebody who computes for SECONDS sets it.
// The address of the flag is printed first.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

volatile int painted;
volatile unsigned long heartbeat;
volatile int lock_word = 1;
struct window {
	char title[24];
	volatile int shown;
} *window;
struct grants {
	int other[16];
	volatile int granted;
} *grants;

static const char *variant;
static int seconds;
static unsigned long table[4096];

static int is(const char *name)
{
	return !strcmp(variant, name);
}

static void nap(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	nanosleep(&t, 0);
}

static int compare(const void *a, const void *b)
{
	unsigned long x = *(const unsigned long *)a, y = *(const unsigned long *)b;
	return x < y ? -1 : x > y;
}

// Real work, all over its code: nobody takes it for a loop that only asks.
__attribute__((noinline)) void blur(void)
{
	struct timespec begin, now;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	do {
		for (int i = 0; i < 4096; i++)
			table[i] = table[i] * 6364136223846793005UL + (unsigned long)i;
		qsort(table, 4096, sizeof *table, compare);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec - begin.tv_sec + (now.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
}

__attribute__((noinline)) void set(void)
{
	if (is("struct"))
		window->shown = 1;
	else if (is("shared"))
		grants->granted = 7;
	else if (is("lock"))
		__atomic_store_n(&lock_word, 0, __ATOMIC_RELEASE);
	else
		painted = 1;
}

static void *paint(void *x)
{
	prctl(PR_SET_NAME, "painter");
	blur();
	set();
	sleep(60);
	return x;
}

__attribute__((noinline)) static int is_painted(void)
{
	return painted;
}

__attribute__((noinline)) static void wait_until_set(void)
{
	struct window *w = window;
	if (is("plain"))
		while (!painted)
			;
	else if (is("struct"))
		while (!w->shown)
			heartbeat++;
	else if (is("call"))
		while (!is_painted())
			;
	else if (is("pause"))
		while (!painted)
			__builtin_ia32_pause();
	else if (is("yield"))
		while (!painted)
			sched_yield();
	else if (is("nap"))
		while (!painted)
			nap(5);
	else if (is("shared"))
		while (grants->granted != 7)
			nap(5);
	else if (is("lock"))
		while (__atomic_exchange_n(&lock_word, 1, __ATOMIC_ACQUIRE))
			__builtin_ia32_pause();
	else if (is("time"))
		for (time_t end = time(0) + 30; !painted && time(0) < end;)
			sched_yield();
}

int main(int argc, char **argv)
{
	variant = argc > 1 ? argv[1] : "plain";
	seconds = argc > 2 ? atoi(argv[2]) : 3;
	window = calloc(1, sizeof *window);
	grants = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child = 0;
	pthread_t thread;
	if (is("shared")) {
		child = fork();
		if (!child) {
			prctl(PR_SET_NAME, "granter");
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			// At another address than in the parent.
			void *elsewhere = mremap(grants, 0, 4096, MREMAP_MAYMOVE);
			munmap(grants, 4096);
			grants = elsewhere;
			blur();
			set();
			sleep(60);
			_exit(0);
		}
	} else {
		pthread_create(&thread, 0, paint, 0);
	}
	void *flag = is("struct") ? (void *)&window->shown : is("shared") ? (void *)&grants->granted :
		     is("lock") ? (void *)&lock_word : (void *)&painted;
	printf("%p\n", flag);
	fflush(stdout);
	wait_until_set();
	puts("went on");
	fflush(stdout);
	nap(1000);
	if (child)
		kill(child, SIGKILL);
	return 0;
}
