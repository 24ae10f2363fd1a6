/* One turn of the loop for each line on standard input: WORK MICROSECONDS. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "work.h"

__attribute__((noinline)) void count(int i)
{
	sink += i;
}

__attribute__((noinline)) void step(void)
{
	for (int i = 0; i < 3000; i++)
		count(i);
}

/* Computes, and comes by `step` again and again. */
__attribute__((noinline)) void search(unsigned long us)
{
	for (unsigned long end = now_us() + us; now_us() < end;)
		step();
	sink++;
}

/* Sleeps. */
__attribute__((noinline)) void fetch(unsigned long us)
{
	step();
	usleep(us);
	sink++;
}

__attribute__((noinline)) void handle(char kind, unsigned long us)
{
	switch (kind) {
	case 's': search(us); break;
	case 't': stick(us); break;
	case 'f': fetch(us); break;
	}
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
