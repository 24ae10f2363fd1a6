/* As server.c; what tells its two kinds of work apart is called when the time was spent. */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "work.h"

__attribute__((noinline)) void start(void)
{
	sink++;
}

__attribute__((noinline)) void report(void)
{
	sink++;
}

__attribute__((noinline)) void handle(char kind, unsigned long us)
{
	start();
	stick(us);
	if (kind == 'r' || kind == 'R')
		report();
	/* And goes on. */
	if (kind == 'R')
		stick(4 * us);
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
