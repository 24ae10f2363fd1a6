/* A listener and its workers: requests come through a pipe, the listener puts each into a queue, a worker takes it and
 * sleeps for as long as the request says. When all is done, says of each request when it was put in and taken out, and
 * when its work was done, in ns of CLOCK_MONOTONIC: "job REQUEST PUT TAKEN DONE THREAD".
 *
 * pool WORKERS REQUESTS GAP_US SERVICE_US: requests come GAP_US apart, in bursts of three. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>

#define MOST 4096
struct job {
	long put, taken, done, thread;
};

static struct job jobs[MOST];
static int queue[MOST];
static int head, tail, stop, requests[2];
static long service_us;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;

static long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void sleep_us(long us)
{
	struct timespec t = { us / 1000000, us % 1000000 * 1000 };
	nanosleep(&t, 0);
}

__attribute__((noinline)) static void work_on(int request)
{
	/* Now and then one takes longer. */
	sleep_us(request % 5 ? service_us : 3 * service_us);
}

static void *worker(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_mutex_lock(&lock);
		while (head == tail && !stop)
			pthread_cond_wait(&more, &lock);
		if (head == tail) {
			pthread_mutex_unlock(&lock);
			return 0;
		}
		int request = queue[head++];
		pthread_mutex_unlock(&lock);
		jobs[request].taken = now();
		jobs[request].thread = syscall(SYS_gettid);
		work_on(request);
		jobs[request].done = now();
	}
}

__attribute__((noinline)) static void hand_over(int request)
{
	pthread_mutex_lock(&lock);
	jobs[request].put = now();
	queue[tail++] = request;
	/* While it has the mutex, as many programs do: who was waiting must wait for that, too. */
	pthread_cond_signal(&more);
	pthread_mutex_unlock(&lock);
}

static void *listener(void *unused)
{
	int request;
	(void)unused;
	while (read(requests[0], &request, sizeof request) == sizeof request)
		hand_over(request);
	return 0;
}

int main(int argc, char **argv)
{
	pthread_t threads[65];
	if (argc < 5 || pipe(requests))
		return 2;
	int workers = atoi(argv[1]), count = atoi(argv[2]);
	long gap = atol(argv[3]);
	service_us = atol(argv[4]);
	if (workers < 1 || workers > 64 || count < 1 || count > MOST)
		return 2;
	for (int i = 0; i <= workers; i++) {
		if (pthread_create(&threads[i], 0, i ? worker : listener, 0))
			abort();
		pthread_setname_np(threads[i], i ? "worker" : "listener");
	}
	sleep_us(100000);
	for (int i = 0; i < count; i++) {
		if (write(requests[1], &i, sizeof i) != sizeof i)
			abort();
		sleep_us(i % 6 < 3 ? gap / 4 : gap);
	}
	close(requests[1]);
	pthread_join(threads[0], 0);
	pthread_mutex_lock(&lock);
	stop = 1;
	pthread_cond_broadcast(&more);
	pthread_mutex_unlock(&lock);
	for (int i = 1; i <= workers; i++)
		pthread_join(threads[i], 0);
	for (int i = 0; i < count; i++)
		printf("job %d %ld %ld %ld %ld\n", i, jobs[i].put, jobs[i].taken, jobs[i].done, jobs[i].thread);
	return 0;
}
