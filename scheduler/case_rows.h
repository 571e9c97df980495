// What the rows of the unit tables are read with, and where they note what differs
// (scheduler/case_tables.h). Members that are missing or have another type make nlohmann throw;
// RunTable catches that per row. Threads: one.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "kube/json.h"
#include "scheduler/shares.h"

namespace sublet::scheduler {

// The words of the tables for the dimensions of a share.
inline constexpr const char* kCaseDims[kShareDims] = {"cpu", "memory", "gpu"};

// The string at `key`; "" where there is none.
std::string CaseText(const kube::Json& object, const char* key);
Amounts CaseAmounts(const kube::Json& object);
QueueShare CaseQueue(const kube::Json& object);

// The queues of a row and their tree.
struct CaseQueues {
  std::vector<QueueShare> queues;
  std::vector<QueueShare*> pointers;  // into `queues`
  std::map<std::string, int> index;
  std::vector<std::vector<int>> children;
  std::vector<int> roots;

  explicit CaseQueues(const kube::Json& list);
  CaseQueues(const CaseQueues&) = delete;
  CaseQueues& operator=(const CaseQueues&) = delete;
  int At(const std::string& name) const;  // -1 when unknown
};

// Collects the differences of one row.
class CaseRow {
 public:
  explicit CaseRow(std::vector<std::string>* problems) : problems_(problems) {}
  // Numbers may differ by 1e-9 of their size.
  void Same(const std::string& what, const kube::Json& want, const kube::Json& have);

 private:
  std::vector<std::string>* problems_;
};

}  // namespace sublet::scheduler
