// operator new and delete of every program here: small blocks go through a list of the thread's own
// in front of malloc. A request makes and drops JSON trees of hundreds of nodes of the same few sizes;
// malloc's own front keeps seven of each size, so most of a tree went through its locked part (a third
// of the processor time of creating a pod).
//
// Invariants:
//  1. Every block comes from malloc and may go back by free: an unsized delete, or one on another
//     thread, needs nothing from here.
//  2. A block is in a list only by a sized delete, under the class its size was allocated in; the
//     sanitizers' builds, which leave this out, check that the sizes agree.
//  3. A thread keeps at most kKeptBytes; what comes beyond goes to malloc. Its lists end with it.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SUBLET_OWN_MALLOC 1
#endif
#endif

#if !defined(SUBLET_OWN_MALLOC) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {

// Class c holds what malloc(16 c + 8) gives: chunks of 16 (c + 1) bytes with 8 of malloc's own.
constexpr std::size_t kClasses = 17;
constexpr std::size_t kSizeMax = (kClasses - 1) * 16 + 8;
constexpr std::size_t kKeptBytes = std::size_t{96} << 10;

constexpr std::size_t ClassOf(std::size_t size) { return (size + 7) / 16; }
constexpr std::size_t BytesOf(std::size_t size_class) { return size_class * 16 + 8; }

struct Block {
  Block* next;
};

struct Lists {
  Block* first[kClasses];
  std::size_t kept;
  bool ending;  // the thread's destructors run: nothing is kept any more
  bool watched;
};

constinit thread_local Lists lists{};

// Gives the lists back when the thread ends.
struct AtThreadEnd {
  ~AtThreadEnd() {
    lists.ending = true;
    for (Block*& first : lists.first) {
      while (first != nullptr) {
        std::free(std::exchange(first, first->next));
      }
    }
    lists.kept = 0;
  }
  void Touch() {}
};
thread_local AtThreadEnd at_thread_end;

[[gnu::noinline]] void* AllocateSlow(std::size_t bytes) {
  for (;;) {
    if (void* const block = std::malloc(bytes)) {
      return block;
    }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) {
      throw std::bad_alloc();
    }
    handler();
  }
}

[[gnu::noinline]] void FirstKept() {
  lists.watched = true;
  at_thread_end.Touch();
}

}  // namespace

void* operator new(std::size_t size) {
  if (size > kSizeMax) {
    return AllocateSlow(size);
  }
  const std::size_t size_class = ClassOf(size);
  if (Block* const block = lists.first[size_class]) {
    lists.first[size_class] = block->next;
    lists.kept -= BytesOf(size_class);
    return block;
  }
  return AllocateSlow(BytesOf(size_class));
}

void operator delete(void* pointer) noexcept { std::free(pointer); }

void operator delete(void* pointer, std::size_t size) noexcept {
  const std::size_t size_class = ClassOf(size);
  if (size > kSizeMax || pointer == nullptr || lists.ending ||
      lists.kept + BytesOf(size_class) > kKeptBytes) {
    std::free(pointer);
    return;
  }
  if (!lists.watched) [[unlikely]] {
    FirstKept();
  }
  auto* const block = static_cast<Block*>(pointer);
  block->next = lists.first[size_class];
  lists.first[size_class] = block;
  lists.kept += BytesOf(size_class);
}

#endif
