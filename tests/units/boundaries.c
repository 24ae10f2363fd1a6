/* A server with two event loops. The main thread waits for requests of a client and, within some, for the answer of an
 * upstream server, both by the same function. A worker waits for jobs and, within each, for a lock. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int requests[2], answers[2], questions[2], replies[2];
static pthread_mutex_t queue = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int jobs, stop;
static volatile unsigned long work;

static void sleep_ms(long ms)
{
	struct timespec t = { 0, ms * 1000000 };
	nanosleep(&t, 0);
}

static void put(int fd, char c)
{
	if (write(fd, &c, 1) != 1)
		abort();
}

__attribute__((noinline)) static char get(int fd)
{
	struct pollfd p = { fd, POLLIN, 0 };
	char c;
	if (poll(&p, 1, -1) != 1 || read(fd, &c, 1) != 1)
		abort();
	return c;
}

__attribute__((noinline)) static void compute(void)
{
	for (int i = 0; i < 2000000; i++)
		work += i;
}

__attribute__((noinline)) static void ask_upstream(void)
{
	put(questions[1], 'q');
	work += get(replies[0]);
}

__attribute__((noinline)) static void hand_over(void)
{
	pthread_mutex_lock(&queue);
	jobs++;
	pthread_mutex_unlock(&queue);
	pthread_cond_signal(&more);
}

__attribute__((noinline)) static void serve(void)
{
	for (;;) {
		char c = get(requests[0]);
		if (c == 'u')
			ask_upstream();
		else if (c == 'w')
			hand_over();
		compute();
		put(answers[1], c);
		if (c == 'e')
			return;
	}
}

static void *worker(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&queue);
		while (!jobs && !stop)
			pthread_cond_wait(&more, &queue);
		int last = !jobs;
		jobs -= !last;
		pthread_mutex_unlock(&queue);
		if (last)
			return 0;
		pthread_mutex_lock(&lock);
		work++;
		pthread_mutex_unlock(&lock);
		compute();
	}
}

static void *upstream(void *unused)
{
	(void)unused;
	for (char c; read(questions[0], &c, 1) == 1 && c == 'q';) {
		sleep_ms(2);
		put(replies[1], c);
	}
	return 0;
}

static void ask(char c)
{
	put(requests[1], c);
	if (read(answers[0], &c, 1) != 1)
		abort();
	/* Time for the server to wait again, also on a busy machine. */
	sleep_ms(5);
}

static void *client(void *rounds)
{
	for (long i = 0; i < (long)rounds; i++) {
		ask('u');
		pthread_mutex_lock(&lock);
		ask('w');
		pthread_mutex_unlock(&lock);
		ask('c');
	}
	ask('e');
	put(questions[1], 'e');
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[3];
	void *(*all[3])(void *) = { worker, upstream, client };
	static const char *const names[3] = { "worker", "upstream", "client" };
	if (pipe(requests) || pipe(answers) || pipe(questions) || pipe(replies))
		abort();
	for (int i = 0; i < 3; i++)
		if (pthread_create(&threads[i], 0, all[i], (void *)atol(argc > 1 ? argv[1] : "40"))
		    || pthread_setname_np(threads[i], names[i]))
			abort();
	serve();
	pthread_mutex_lock(&queue);
	stop = 1;
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&queue);
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	return 0;
}
