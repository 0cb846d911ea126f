/* A library that is preloaded into NFS-Ganesha. It does two things, both of which the share manager requests with
 * environment variables. Without its variable, neither happens.
 *
 *	LONGHORN_WAKE_FD     the reading end of a pipe: for each byte, Ganesha checks whether its grace period may end
 *	LONGHORN_LISTEN_FD   a listening socket, which Ganesha uses instead of a socket of its own for the same port
 *
 * The checks: Ganesha ends its grace period when all clients that it has records of have claimed their state, but it
 * checks this only every half lease. libganesha_nfsd exports reaper_wake(), which makes it check at once, with all of
 * its own conditions. If a release does not export it, the library does nothing and closes the pipe.
 *
 * The socket: the kernel accepts connections on it while no Ganesha runs, and keeps the clients' requests until the next
 * Ganesha reads them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static int listener = -1;

/* The library runs with the libc of the image, which may be older than that of the machine that built it. With newer
 * headers, atoi() calls a function that an older libc lacks, and then Ganesha would not start. */
static int number_of(const char *digits)
{
	int n = 0;

	for (; *digits >= '0' && *digits <= '9'; digits++)
		n = 10 * n + (*digits - '0');
	return n;
}

/* take returns the file descriptor that an environment variable names, or -1. Programs that Ganesha starts get neither
 * the variable nor the descriptor. */
static int take(const char *variable)
{
	const char *number = getenv(variable);
	int fd;

	if (!number)
		return -1;
	fd = number_of(number);
	unsetenv(variable);
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	return fd;
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
static void start_looking(int fd)
{
	sigset_t all, before;
	pthread_t thread;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, look, (void *)(intptr_t)fd) == 0)
		pthread_detach(thread);
	else
		close(fd);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

__attribute__((constructor)) static void start(void)
{
	int wake = take("LONGHORN_WAKE_FD");

	listener = take("LONGHORN_LISTEN_FD");
	unsetenv("LD_PRELOAD");
	if (wake >= 0)
		start_looking(wake);
}

/* is_listener reports whether an address is that of the listening socket: same family, same port. */
static int is_listener(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_in6 own; /* both families have their port at the same place */
	socklen_t own_length = sizeof(own);
	int type = 0;
	socklen_t type_length = sizeof(type);

	return listener >= 0 && length >= sizeof(struct sockaddr_in) &&
	       getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &type_length) == 0 && type == SOCK_STREAM &&
	       getsockname(listener, (struct sockaddr *)&own, &own_length) == 0 && address->sa_family == own.sin6_family &&
	       ((const struct sockaddr_in *)address)->sin_port == own.sin6_port;
}

/* bind replaces libc's function for all of Ganesha. If the address is that of the listening socket, fd becomes that
 * socket, with the options that the share manager has set. */
int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t length)
{
	if (!is_listener(fd, address.__sockaddr__, length))
		return (int)syscall(SYS_bind, fd, address.__sockaddr__, length);
	return dup2(listener, fd) < 0 ? -1 : 0;
}
