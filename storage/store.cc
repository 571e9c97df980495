#include "storage/store.h"

#include "base/mutex.h"

namespace sublet::storage {

Result<TxnResult> Store::TransactSync(std::vector<Op> ops) {
  Mutex mutex;
  CondVar ready;
  std::optional<Result<TxnResult>> answer;
  Transact(std::move(ops), [&](Result<TxnResult> result) {
    MutexLock lock(mutex);
    answer = std::move(result);
    ready.NotifyOne();
  });
  MutexLock lock(mutex);
  while (!answer) {
    ready.Wait(mutex);
  }
  return std::move(*answer);
}

}  // namespace sublet::storage
