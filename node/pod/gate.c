/* Stands before a container's own command while hooks of its devices run: waits until the other end
 * of /.sublet-gate/go was opened for writing and closed, then becomes the command in argv[1..].
 * Built without libc, because the image may have none. */
#if defined(__x86_64__)
enum { kRead = 0, kWrite = 1, kClose = 3, kExecve = 59, kExitGroup = 231, kOpenat = 257 };
static long Call(long n, long a, long b, long c, long d) {
  long r;
  register long r10 __asm__("r10") = d;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10)
                   : "rcx", "r11", "memory");
  return r;
}
__asm__(".globl _start\n_start: xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call Main\n");
#elif defined(__aarch64__)
enum { kRead = 63, kWrite = 64, kClose = 57, kExecve = 221, kExitGroup = 94, kOpenat = 56 };
static long Call(long n, long a, long b, long c, long d) {
  register long x8 __asm__("x8") = n;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
  return x0;
}
__asm__(".globl _start\n_start: mov x29, #0\n mov x0, sp\n bl Main\n");
#else
#error "the gate has no system call code for this architecture"
#endif

enum { kAtFdCwd = -100, kNoEntry = -2, kPathMax = 4096 };

static unsigned long Length(const char* text) {
  unsigned long n = 0;
  while (text[n] != 0) {
    ++n;
  }
  return n;
}

static int HasSlash(const char* text) {
  for (; *text != 0; ++text) {
    if (*text == '/') {
      return 1;
    }
  }
  return 0;
}

static void Say(const char* text) { Call(kWrite, 2, (long)text, (long)Length(text), 0); }

static const char* FindPath(char** env) {
  for (; *env != 0; ++env) {
    const char* e = *env;
    if (e[0] == 'P' && e[1] == 'A' && e[2] == 'T' && e[3] == 'H' && e[4] == '=') {
      return e + 5;
    }
  }
  return "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
}

/* execvp: tries each folder of PATH; returns the last error. */
static long Become(char** argv, char** env) {
  static char path[kPathMax];
  if (HasSlash(argv[0])) {
    return Call(kExecve, (long)argv[0], (long)argv, (long)env, 0);
  }
  long error = kNoEntry;
  const unsigned long name = Length(argv[0]);
  const char* at = FindPath(env);
  for (;;) {
    unsigned long n = 0;
    while (at[n] != 0 && at[n] != ':') {
      ++n;
    }
    if (n + name + 2 < kPathMax) {
      unsigned long i;
      for (i = 0; i < n; ++i) {
        path[i] = at[i];
      }
      path[n] = '/';
      for (i = 0; i <= name; ++i) {
        path[n + 1 + i] = argv[0][i];
      }
      const long result = Call(kExecve, (long)path, (long)argv, (long)env, 0);
      if (result != kNoEntry) {
        error = result;
      }
    }
    if (at[n] == 0) {
      return error;
    }
    at += n + 1;
  }
}

__attribute__((noreturn, used)) void Main(long* stack) {
  const long argc = stack[0];
  char** argv = (char**)(stack + 1);
  char** env = argv + argc + 1;
  const long fd = Call(kOpenat, kAtFdCwd, (long)"/.sublet-gate/go", 0, 0);
  char byte;
  if (fd >= 0) {
    Call(kRead, fd, (long)&byte, 1, 0);
    Call(kClose, fd, 0, 0, 0);
  }
  long code = 127;
  if (argc > 1) {
    code = Become(argv + 1, env) == kNoEntry ? 127 : 126;
    Say("cannot run ");
    Say(argv[1]);
    Say("\n");
  }
  for (;;) {
    Call(kExitGroup, code, 0, 0, 0);
  }
}
