/* A library that is preloaded into NFS-Ganesha: it has Ganesha look when it is told to whether all clients have claimed their state.
 *
 * Ganesha ends its grace period when all clients that it has records of have come back, but looks for that only each half lease.
 * libganesha_nfsd exports reaper_wake(), which makes it look now, with all of its own conditions. Where that is missing,
 * the library does nothing.
 *
 *	LONGHORN_WAKE_FD   a pipe's end for reading: each byte is one look, and the end of the pipe the end of the looks
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

/* It runs with the libc of the image, which may be older than that of the machine that built it: newer headers have atoi() call a
 * function that an older libc lacks, and then Ganesha would not start. */
static int number_of(const char *digits)
{
	int n = 0;

	for (; *digits >= '0' && *digits <= '9'; digits++)
		n = 10 * n + (*digits - '0');
	return n;
}

static void *look(void *arg)
{
	int fd = (int)(intptr_t)arg;
	void (*wake)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "reaper_wake");
	char byte;
	ssize_t n = 1;

	while (wake && (n > 0 || (n < 0 && errno == EINTR))) {
		n = read(fd, &byte, 1);
		if (n > 0)
			wake();
	}
	close(fd);
	return NULL;
}

/* Ganesha takes signals in one thread of its own, so all are blocked in this one. */
__attribute__((constructor)) static void begin(void)
{
	const char *number = getenv("LONGHORN_WAKE_FD");
	sigset_t all, before;
	pthread_t thread;
	int fd;

	if (!number)
		return;
	fd = number_of(number);
	unsetenv("LONGHORN_WAKE_FD");
	unsetenv("LD_PRELOAD");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, look, (void *)(intptr_t)fd) == 0)
		pthread_detach(thread);
	else
		close(fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
