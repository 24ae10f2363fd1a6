/* As server.c; what tells its two kinds of work apart is called when the time was spent. */
#include <poll.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

volatile unsigned long sink;

static unsigned long now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ul + t.tv_nsec / 1000;
}

__attribute__((noinline)) void start(void)
{
	sink++;
}

__attribute__((noinline)) void report(void)
{
	sink++;
}

__attribute__((noinline)) void spend(unsigned long us)
{
	for (unsigned long end = now_us() + us; now_us() < end;)
		sink++;
	sink++;
}

__attribute__((noinline)) void handle(char kind, unsigned long us)
{
	start();
	spend(us);
	if (kind == 'r' || kind == 'R')
		report();
	/* And goes on. */
	if (kind == 'R')
		spend(4 * us);
	sink++;
}

int main(void)
{
	char line[32];
	for (;;) {
		struct pollfd in = { .fd = 0, .events = POLLIN };
		poll(&in, 1, -1);
		if (read(0, line, 16) != 16)
			return 0;
		handle(line[0], strtoul(line + 1, 0, 10));
		if (write(1, "", 1) != 1)
			return 1;
	}
}
