/* Whoever serves is made for it. Each line on standard input, KIND MICROSECONDS, is one piece of work for a new child (F, f)
 * or a new thread (T, t), which waits for it first (F, T) or finds it there (f, t); it answers and stays. A thread (X) that waits for its work answers and ends. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "work.h"

__attribute__((noinline)) int take(int from, char *line)
{
	int n = read(from, line, 16);
	sink++;
	return n == 16;
}

__attribute__((noinline)) void serve(int from)
{
	char line[17] = "";
	while (take(from, line)) {
		stick(strtoul(line + 1, 0, 10));
		if (write(1, "", 1) != 1 || line[0] == 'X')
			return;
	}
	sink++;
}

static void *run(void *from)
{
	serve((long)from);
	return 0;
}

int main(void)
{
	char line[17] = "";
	while (read(0, line, 16) == 16) {
		int to[2], waits = line[0] == 'F' || line[0] == 'T' || line[0] == 'X';
		pthread_t t;
		if (line[0] != 'F' && line[0] != 'f' && line[0] != 'T' && line[0] != 't' && line[0] != 'X') {
			if (write(1, "", 1) != 1)
				return 1;
			continue;
		}
		if (pipe(to) || (!waits && write(to[1], line, 16) != 16))
			return 1;
		if (line[0] == 'F' || line[0] == 'f') {
			if (!fork()) {
				prctl(PR_SET_PDEATHSIG, SIGKILL);
				serve(to[0]);
				_exit(0);
			}
		} else if (pthread_create(&t, 0, run, (void *)(long)to[0])) {
			return 1;
		}
		if (waits && (usleep(2000) || write(to[1], line, 16) != 16))
			return 1;
	}
	return 0;
}
