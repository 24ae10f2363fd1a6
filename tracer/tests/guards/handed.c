/* A worker that waits for a condition, and is signalled by who keeps the mutex for a while longer: it is woken, and has to
 * wait once more, for the mutex, within the same call. A line on standard input is work of so many microseconds. */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "work.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static volatile long asked, done;
__attribute__((noinline)) void *serve(void *unused)
{
	for (;;) {
		long us;
		pthread_mutex_lock(&lock);
		while (!asked)
			pthread_cond_wait(&more, &lock);
		us = asked;
		asked = 0;
		pthread_mutex_unlock(&lock);
		stick(us);
		done = 1;
	}
	return unused;
}

int main(void)
{
	char line[32];
	pthread_t worker;
	if (pthread_create(&worker, 0, serve, 0))
		return 1;
	for (;;) {
		if (read(0, line, 16) != 16)
			return 0;
		pthread_mutex_lock(&lock);
		done = 0;
		asked = atol(line + 1);
		pthread_cond_signal(&more);
		usleep(3000);
		pthread_mutex_unlock(&lock);
		while (!done)
			usleep(200);
		if (write(1, "", 1) != 1)
			return 1;
	}
}
