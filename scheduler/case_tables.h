// The unit tables (scheduler/cases.h): each row is one call of a function of shares.h,
// min_runtime.h or one of topology*.h. One function a table: it reads the row, makes the
// call and notes in `out` what differs from the row's "expected". Threads: one.
#pragma once

#include "scheduler/case_rows.h"

namespace sublet::scheduler {

void DivisionRow(const kube::Json& row, CaseRow& out);
void FairShareRow(const kube::Json& row, CaseRow& out);
void ShareArithmeticRow(const kube::Json& row, CaseRow& out);
void QueueOrderRow(const kube::Json& row, CaseRow& out);
void StrategiesRow(const kube::Json& row, CaseRow& out);
void ReclaimRow(const kube::Json& row, CaseRow& out);
void QueueCapacityRow(const kube::Json& row, CaseRow& out);
void MinRuntimeRow(const kube::Json& row, CaseRow& out);
void TopologyRow(const kube::Json& row, CaseRow& out);

}  // namespace sublet::scheduler
