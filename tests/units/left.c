/* One thread serves connections one after the other: a loop of them around one of requests, which are a byte each, as is the
 * answer. `p` ends a connection; until the next one the thread is parked by the function of both loops. `z` is a request that
 * sleeps in that function. */
#include <unistd.h>

static volatile unsigned long served;

__attribute__((noinline)) static void work(unsigned long turns)
{
	for (unsigned long i = 0; i < turns; i++)
		served++;
}

__attribute__((noinline)) static int serve(void)
{
	for (;;) {
		work(10);
		char request;
		while (read(0, &request, 1) == 1 && request != 'p') {
			if (request == 'z')
				usleep(700000);
			work(50000);
			if (write(1, "+", 1) != 1)
				return 1;
		}
		if (write(1, "+", 1) != 1)
			return 1;
		usleep(400000);
	}
}

int main(void)
{
	return serve();
}
