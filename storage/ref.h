// Ref<T>: an intrusive counted pointer for the immutable nodes and entries of the key tree. Half
// the size of a shared_ptr, and it can answer "am I the only owner?", which is how the tree decides
// between changing a node in place and copying it (key_tree.h).
// Threads: counting is atomic; what it points to is immutable unless IsUnique().
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace sublet::storage {

class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;

 private:
  template <typename T>
  friend class Ref;
  mutable std::atomic<std::uint32_t> refs_{0};
};

template <typename T>
class Ref {
 public:
  Ref() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): null is written as nullptr.
  Ref(std::nullptr_t) {}
  explicit Ref(T* object) : object_(object) { Acquire(); }
  Ref(const Ref& other) : object_(other.object_) { Acquire(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    // The release half publishes our reads, the acquire half sees those of the other owners before
    // the object dies.
    if (object_ != nullptr && object_->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      delete object_;
    }
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  // True when no other Ref points to it: then nobody else can get one, and the owner may change it.
  bool IsUnique() const { return object_->refs_.load(std::memory_order_acquire) == 1; }

 private:
  void Acquire() {
    if (object_ != nullptr) {
      object_->refs_.fetch_add(1, std::memory_order_relaxed);
    }
  }
  T* object_ = nullptr;
};

template <typename T, typename... Args>
Ref<T> MakeRef(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

}  // namespace sublet::storage
