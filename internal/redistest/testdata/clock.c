// A clock for redis-server that a test can set: preloaded, it adds to the time the seconds in a file
// that is shared with the test. Timers are not affected, as they are not when an administrator sets
// the clock of a machine.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void share(void) {
	int file = open(getenv("REDISTEST_CLOCK"), O_RDONLY);
	void *shared = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
	if (shared == MAP_FAILED)
		_exit(1);
	offset = shared;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
	int result = syscall(SYS_gettimeofday, now, zone);
	if (result == 0 && offset)
		now->tv_sec += *offset;
	return result;
}
