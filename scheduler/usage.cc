#include "scheduler/usage.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kube/json.h"

namespace sublet::scheduler {

using kube::Json;

namespace {

constexpr double kForgotten = 1e-6;  // of the cluster: below it a queue that is gone has no row

Json RowJson(const UsageHistory::Row& row) { return Json::array({row[0], row[1], row[2]}); }

bool ReadRow(const Json* json, UsageHistory::Row* row) {
  if (json == nullptr || !json->is_array() || json->size() != row->size()) {
    return false;
  }
  for (std::size_t i = 0; i < row->size(); ++i) {
    const Json& number = (*json)[i];
    if (!number.is_number() || !std::isfinite(number.get<double>()) || number.get<double>() < 0) {
      return false;
    }
    (*row)[i] = number.get<double>();
  }
  return true;
}

}  // namespace

void UsageHistory::Advance(Millis now, const std::vector<QueueView>& queues, const Row& total) {
  if (at_ != 0 && now > at_) {
    const double age = static_cast<double>(now - at_);
    const double kept = std::exp2(-age / static_cast<double>(half_life_));
    // What was held evenly for `age` counts for this many milliseconds of now.
    const double span = (1 - kept) * static_cast<double>(half_life_) / std::log(2.0);
    const auto pass = [&](Track& track) {
      for (std::size_t r = 0; r < track.sum.size(); ++r) {
        track.sum[r] = track.sum[r] * kept + track.held[r] * span;
      }
      track.held = {};
    };
    pass(total_);
    for (auto& [name, track] : queues_) {
      pass(track);
    }
  }
  at_ = std::max(at_, now);
  total_.held = total;
  for (const QueueView& queue : queues) {
    Track& track = queues_[queue.name];
    for (std::size_t r = 0; r < track.held.size(); ++r) {
      track.held[r] = queue.share.r[r].allocated;
    }
  }
  const auto shares = Shares();
  std::erase_if(queues_, [&](const auto& entry) {
    const Row& share = shares.at(entry.first);
    return entry.second.held == Row{} && share[0] < kForgotten && share[1] < kForgotten &&
           share[2] < kForgotten;
  });
}

std::map<std::string, UsageHistory::Row> UsageHistory::Shares() const {
  std::map<std::string, Row> out;
  for (const auto& [name, track] : queues_) {
    Row& share = out[name];
    for (std::size_t r = 0; r < share.size(); ++r) {
      share[r] = total_.sum[r] > 0 ? std::min(track.sum[r] / total_.sum[r], 1.0) : 0;
    }
  }
  return out;
}

std::string UsageHistory::Encode() const {
  Json queues = Json::object();
  for (const auto& [name, track] : queues_) {
    queues[name] = RowJson(track.sum);
  }
  return Json{{"at", at_}, {"total", RowJson(total_.sum)}, {"queues", std::move(queues)}}.dump();
}

bool UsageHistory::Decode(const std::string& text) {
  const auto json = kube::ParseJson(text);
  if (!json.ok() || !json->is_object()) {
    return false;
  }
  UsageHistory read(half_life_);
  const Json* at = kube::Find(*json, {"at"});
  const Json* queues = kube::Find(*json, {"queues"});
  if (at == nullptr || !at->is_number_integer() || queues == nullptr || !queues->is_object() ||
      !ReadRow(kube::Find(*json, {"total"}), &read.total_.sum)) {
    return false;
  }
  read.at_ = at->get<Millis>();
  for (const auto& [name, row] : queues->items()) {
    if (!ReadRow(&row, &read.queues_[name].sum)) {
      return false;
    }
  }
  *this = std::move(read);
  return true;
}

}  // namespace sublet::scheduler
