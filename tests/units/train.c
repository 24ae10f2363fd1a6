/* A server that is sent requests by a thread of its own, one after the other: `n` needs a nap of 3 ms, `c` computes for
 * 15 ms of its CPU time, `q` does hardly anything. */
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int requests[2], answers[2];
static volatile unsigned long work;

static void sleep_ms(long ms)
{
	struct timespec t = { ms / 1000, ms % 1000 * 1000000 };
	nanosleep(&t, 0);
}

__attribute__((noinline)) static void take_a_nap(void)
{
	sleep_ms(3);
	work++;
}

__attribute__((noinline)) static void compute(void)
{
	struct timespec from, now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	do {
		for (int i = 0; i < 20000; i++)
			work += i;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	} while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 15000000);
	work++;
}

__attribute__((noinline)) static int handle(char request)
{
	if (request == 'n')
		take_a_nap();
	else if (request == 'c')
		compute();
	if (write(answers[1], &request, 1) != 1)
		abort();
	return request != 'e';
}

__attribute__((noinline)) static void serve(void)
{
	for (;;) {
		struct pollfd p = { requests[0], POLLIN, 0 };
		char request;
		if (poll(&p, 1, -1) == 1 && read(requests[0], &request, 1) == 1 && !handle(request))
			break;
	}
}

static void ask(char request)
{
	if (write(requests[1], &request, 1) != 1 || read(answers[0], &request, 1) != 1)
		abort();
	/* Time for the server to wait again, also on a busy machine. */
	sleep_ms(15);
}

static void *clients(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++) {
		ask('n');
		ask('c');
		ask('q');
	}
	ask('e');
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t t;
	if (pipe(requests) || pipe(answers) || pthread_create(&t, 0, clients, (void *)atol(argc > 1 ? argv[1] : "40")))
		abort();
	serve();
	pthread_join(t, 0);
	return 0;
}
