/*
 * A ptrace(2) for kernels of user-mode Linux that know registers of at most
 * 2696 bytes per thread. The real machine's kernel refuses to set the registers
 * of a thread from a buffer that is shorter than all that the processor has
 * (AMX has 8 KiB more). This one adds the missing end, which is zero: the
 * features there are in their initial state, since no guest can turn them on.
 *
 * It includes no header, so that a compiler is all it takes to build.
 */
#define PTRACE_PEEKUSR 3
#define PTRACE_GETREGSET 0x4204
#define PTRACE_SETREGSET 0x4205
#define NT_X86_XSTATE 0x202
#define SYS_ptrace 101

struct vector {
	unsigned char *base;
	unsigned long length;
};

extern int *__errno_location(void);

static long call(long request, long pid, long address, long data)
{
	register long r10 __asm__("r10") = data;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"((long)SYS_ptrace), "D"(request), "S"(pid), "d"(address), "r"(r10)
			 : "rcx", "r11", "memory");
	return result;
}

static unsigned char whole[1 << 16] __attribute__((aligned(64)));
static unsigned long whole_length;

static long set_registers(long pid, struct vector *given)
{
	struct vector v = { whole, sizeof(whole) };
	long result;
	unsigned long i;

	if (!whole_length) {
		result = call(PTRACE_GETREGSET, pid, NT_X86_XSTATE, (long)&v);
		if (result < 0)
			return result;
		whole_length = v.length;
	}
	if (given->length >= whole_length)
		return call(PTRACE_SETREGSET, pid, NT_X86_XSTATE, (long)given);
	for (i = 0; i < given->length; i++)
		whole[i] = given->base[i];
	for (; i < whole_length; i++)
		whole[i] = 0;
	v.length = whole_length;
	return call(PTRACE_SETREGSET, pid, NT_X86_XSTATE, (long)&v);
}

long ptrace(long request, long pid, long address, long data)
{
	long word = 0, result;

	if (request == PTRACE_SETREGSET && address == NT_X86_XSTATE)
		result = set_registers(pid, (struct vector *)data);
	else if (request >= 1 && request <= PTRACE_PEEKUSR) /* the C library returns the word */
		result = call(request, pid, address, (long)&word);
	else
		result = call(request, pid, address, data);
	if (result < 0) {
		*__errno_location() = -(int)result;
		return -1;
	}
	*__errno_location() = 0;
	return request >= 1 && request <= PTRACE_PEEKUSR ? word : result;
}
