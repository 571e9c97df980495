// The connection to gpud: made by the first call that needs it, kept by one helper thread that
// sleeps in poll() while nobody competes for the device. When gpud goes away the pages stay: caps
// hold as they are, launches go on ungated after a second (launch.cc), and the helper connects
// again.
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "gpu/hooks/libc_floor.h"
#include "gpu/hooks/real_driver.h"
#include "gpu/hooks/state.h"

namespace sublet::gpu {
namespace {

constexpr std::uint64_t kConnectNs = 5'000'000'000ULL;
constexpr std::uint64_t kRetryNs = 100'000'000ULL;

// The descriptor of this process's connection outlives a fork in the child's table: the child
// closes it before it makes its own.
std::atomic<int> inherited_socket{-1};

void Folder(char* out, std::size_t bytes) {
  const char* folder = kContainerFolder;
  if (access(kContainerFolder, F_OK) != 0) {
    const char* told = getenv("SUBLET_GPU_FOLDER");
    if (told != nullptr && told[0] == '/') {
      folder = told;
    }
  }
  std::size_t at = 0;
  for (; folder[at] != 0 && at + 1 < bytes; ++at) {
    out[at] = folder[at];
  }
  out[at] = 0;
}

int OpenSocket() {
  struct sockaddr_un address;
  memset(&address, 0, sizeof address);
  address.sun_family = AF_UNIX;
  Folder(address.sun_path, sizeof address.sun_path - 16);
  const std::size_t length = strlen(address.sun_path);
  address.sun_path[length] = '/';
  memcpy(address.sun_path + length + 1, kSocketName, strlen(kSocketName) + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return -1;
  }
  if (connect(fd, reinterpret_cast<struct sockaddr*>(&address), sizeof address) != 0) {
    close(fd);
    return -1;
  }
  return fd;
}

// Receives the answer and its two descriptors. False: none within two seconds, or a wrong one.
bool ReceiveWelcome(int fd, Welcome* welcome, int* control, int* usage) {
  struct pollfd waiting = {fd, POLLIN, 0};
  if (poll(&waiting, 1, 2000) != 1) {
    return false;
  }
  struct iovec part = {welcome, sizeof *welcome};
  alignas(struct cmsghdr) char space[CMSG_SPACE(2 * sizeof(int))];
  struct msghdr message;
  memset(&message, 0, sizeof message);
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = space;
  message.msg_controllen = sizeof space;
  const ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  *control = *usage = -1;
  if (struct cmsghdr* header = CMSG_FIRSTHDR(&message);
      got > 0 && header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
    memcpy(control, CMSG_DATA(header), sizeof(int));
    memcpy(usage, CMSG_DATA(header) + sizeof(int), sizeof(int));
  }
  return got == static_cast<ssize_t>(sizeof *welcome) && welcome->magic == kPageMagic;
}

// Says hello and maps the pages. 0: connected; 1: refused for good; -1: not now.
int Greet(ProcessState& state, int fd, bool resume) {
  Hello hello = {};
  hello.magic = kPageMagic;
  hello.version = kProtocolVersion;
  hello.kind = resume ? kHelloResume : kHelloProcess;
  hello.container_pid = static_cast<std::uint32_t>(getpid());
  hello.slot = state.slot_index;
  hello.generation = state.generation;
  if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof hello)) {
    return -1;
  }
  Welcome welcome = {};
  int control_fd = -1;
  int usage_fd = -1;
  if (!ReceiveWelcome(fd, &welcome, &control_fd, &usage_fd)) {
    return -1;
  }
  int result = 1;
  if (welcome.status == kWelcome && control_fd >= 0 && usage_fd >= 0 &&
      welcome.slot < kPageSlotsMax) {
    void* control = mmap(nullptr, sizeof(ControlPage), PROT_READ, MAP_SHARED, control_fd, 0);
    void* usage =
        resume && welcome.usage_is_same != 0
            ? static_cast<void*>(state.usage.load())
            : mmap(nullptr, sizeof(UsagePage), PROT_READ | PROT_WRITE, MAP_SHARED, usage_fd, 0);
    if (control != MAP_FAILED && usage != MAP_FAILED &&
        static_cast<ControlPage*>(control)->magic == kPageMagic &&
        static_cast<UsagePage*>(usage)->magic == kPageMagic) {
      UsagePage* page = static_cast<UsagePage*>(usage);
      state.slot_index = welcome.slot;
      state.generation = welcome.generation;
      state.single_device = static_cast<ControlPage*>(control)->device_count == 1 ? 0 : -1;
      // An earlier control page stays mapped: another thread may be waiting on it.
      state.usage.store(page);
      state.slot.store(&page->slots[welcome.slot]);
      state.control.store(static_cast<ControlPage*>(control));
      result = 0;
    }
  }
  if (control_fd >= 0) {
    close(control_fd);
  }
  if (usage_fd >= 0) {
    close(usage_fd);
  }
  return result;
}

// Connects again after gpud went away; its socket comes back in the same folder.
void Reconnect(ProcessState& state, int old) {
  if (old >= 0) {
    state.socket.store(-1);
    inherited_socket.store(-1);
    close(old);
  }
  const int fd = OpenSocket();
  if (fd >= 0 && Greet(state, fd, true) == 0) {
    state.socket.store(fd);
    inherited_socket.store(fd);
    return;
  }
  if (fd >= 0) {
    close(fd);
  }
  NapNs(kRetryNs);
}

// Sleeps in poll() but while marks are under way; every signal is blocked, so that no handler of
// the program runs here.
void* HelperMain(void* argument) {
  ProcessState& state = *static_cast<ProcessState*>(argument);
  for (;;) {
    const int fd = state.socket.load();
    if (fd < 0) {
      ServeContended(state);
      Reconnect(state, -1);
      continue;
    }
    state.helper_asleep.store(1);
    struct pollfd waiting[2] = {{fd, POLLIN, 0}, {state.helper_event.load() - 1, POLLIN, 0}};
    if (ServeContended(state)) {
      state.helper_asleep.store(0);
      if (poll(waiting, 2, 0) == 0) {
        NapNs(100'000);
        continue;
      }
    } else {
      poll(waiting, 2, -1);
    }
    state.helper_asleep.store(0);
    if ((waiting[1].revents & POLLIN) != 0) {
      std::uint64_t count = 0;
      if (read(waiting[1].fd, &count, sizeof count) < 0) {
        continue;
      }
    }
    if (waiting[0].revents != 0) {
      Notice notice;
      const ssize_t got = recv(fd, &notice, sizeof notice, MSG_DONTWAIT);
      if (got <= 0 && !(got < 0 && (errno == EAGAIN || errno == EINTR))) {
        Reconnect(state, fd);
      }
    }
  }
  return nullptr;
}

void StartHelper(ProcessState& state) {
  if (state.helper_started.exchange(1) != 0) {
    return;
  }
  // pthread_create by name: in old glibc it lives in libpthread, which every CUDA program has
  // loaded.
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  using Mask = int (*)(int, const sigset_t*, sigset_t*);
  using Detach = int (*)(pthread_t);
  const auto create = reinterpret_cast<Create>(dlsym(RTLD_DEFAULT, "pthread_create"));
  const auto mask = reinterpret_cast<Mask>(dlsym(RTLD_DEFAULT, "pthread_sigmask"));
  state.helper_event.store(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) + 1);
  const auto detach = reinterpret_cast<Detach>(dlsym(RTLD_DEFAULT, "pthread_detach"));
  if (create == nullptr || mask == nullptr || detach == nullptr) {
    return;
  }
  sigset_t all;
  sigset_t old;
  memset(&all, 0xff, sizeof all);
  mask(SIG_SETMASK, &all, &old);
  pthread_t thread;
  if (create(&thread, nullptr, HelperMain, &state) == 0) {
    detach(thread);  // a library cannot join at exit: no destructor may run after the app's own
  }
  mask(SIG_SETMASK, &old, nullptr);
}

}  // namespace

bool Connect() {
  ProcessState* state = State();
  if (state == nullptr) {
    return false;
  }
  std::uint32_t phase = state->phase.load(std::memory_order_acquire);
  if (phase != 0) {
    return phase == 1;
  }
  LockHolder hold(state->connect_lock);
  phase = state->phase.load(std::memory_order_acquire);
  if (phase != 0) {
    return phase == 1;
  }
  if (const int old = inherited_socket.exchange(-1); old >= 0) {
    close(old);
  }
  state->pid = static_cast<int>(getpid());
  const std::uint64_t until = NowNs() + kConnectNs;
  int result = -1;
  while (result < 0 && NowNs() < until) {
    const int fd = OpenSocket();
    if (fd >= 0) {
      result = Greet(*state, fd, false);
      if (result == 0) {
        state->socket.store(fd);
        inherited_socket.store(fd);
        break;
      }
      close(fd);
    }
    if (result < 0) {
      NapNs(50'000'000);
    }
  }
  if (result < 0) {
    return false;  // not remembered: gpud may come
  }
  if (result == 0) {
    StartHelper(*state);
  }
  state->phase.store(result == 0 ? 1 : 2, std::memory_order_release);
  return result == 0;
}

bool IsEnforced(ProcessState& state) {
  return state.control.load(std::memory_order_relaxed)->is_enforced != 0;
}

void WakeHelper(ProcessState& state) {
  if (state.helper_asleep.load(std::memory_order_relaxed) != 0 &&
      state.helper_asleep.exchange(0) != 0) {
    const std::uint64_t one = 1;
    if (write(state.helper_event.load() - 1, &one, sizeof one) < 0) {
      return;  // full: it is about to wake
    }
  }
}

void SendNotice(ProcessState& state, NoticeKind kind, std::uint32_t device) {
  const Notice notice = {kPageMagic, kind, device, 0};
  const int fd = state.socket.load(std::memory_order_relaxed);
  if (fd >= 0) {
    // A full socket means gpud has not read for long: the waiter's own time-out covers it.
    send(fd, &notice, sizeof notice, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
}

}  // namespace sublet::gpu
