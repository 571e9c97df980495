#include "scheduler/usage.h"

#include <algorithm>
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

void Pour(const UsageHistory::Row& from, double factor, UsageHistory::Row* to) {
  for (std::size_t r = 0; r < from.size(); ++r) {
    (*to)[r] += from[r] * factor;
  }
}

}  // namespace

UsageHistory::UsageHistory(const UsageParams& params)
    : params_(params),
      width_(params.type == UsageParams::Window::kSliding
                 ? std::max<Millis>(params.size / kPieces, 1)
                 : 0) {
  if (params.type == UsageParams::Window::kCron) {
    if (auto parsed = CronTimes::Parse(params.cron); parsed.ok()) {
      cron_ = *parsed;
    }
  }
}

double UsageHistory::Kept(Millis age) const {
  return params_.half_life == 0
             ? 1
             : std::exp2(-static_cast<double>(age) / static_cast<double>(params_.half_life));
}

Millis UsageHistory::WindowStart(Millis now) const {
  switch (params_.type) {
    case UsageParams::Window::kSliding: return now - params_.size;
    case UsageParams::Window::kTumbling:
      // One that begins later has nothing to count yet.
      return params_.start > now ? now : now - (now - params_.start) % params_.size;
    case UsageParams::Window::kCron: break;
  }
  return cron_.LatestAt(now);
}

// What is held was held evenly from `from` to `to`.
void UsageHistory::Count(Millis from, Millis to) {
  if (width_ == 0 ? pieces_.empty() : pieces_.empty() || from - pieces_.back().begin >= width_) {
    pieces_.push_back({from, from, {}, {}});
  }
  Piece& piece = pieces_.back();
  const double aged = Kept(to - piece.end);
  const double age = static_cast<double>(to - from);
  const double half_life = static_cast<double>(params_.half_life);
  const double span =
      params_.half_life == 0 ? age : (1 - Kept(to - from)) * half_life / std::log(2.0);
  piece.end = to;
  for (double& amount : piece.total) {
    amount *= aged;
  }
  Pour(total_held_, span, &piece.total);
  for (auto& [name, sum] : piece.queues) {
    for (double& amount : sum) {
      amount *= aged;
    }
  }
  for (const auto& [name, held] : held_) {
    if (held != Row{}) {
      Pour(held, span, &piece.queues[name]);
    }
  }
}

void UsageHistory::Advance(Millis now, const std::vector<QueueView>& queues, const Row& total) {
  if (at_ != 0 && now > at_) {
    const Millis start = WindowStart(now);
    while (!pieces_.empty() &&
           (width_ == 0 ? pieces_.front().begin : pieces_.front().end) < start) {
      pieces_.pop_front();
    }
    for (Millis from = std::max(at_, start); from < now;) {
      const Millis to = width_ == 0 ? now : std::min(now, from + width_);
      Count(from, to);
      from = to;
    }
  }
  at_ = std::max(at_, now);
  total_held_ = total;
  held_.clear();
  for (const QueueView& queue : queues) {
    Row& row = held_[queue.name];
    for (std::size_t r = 0; r < row.size(); ++r) {
      row[r] = queue.share.r[r].allocated;
    }
  }
  const auto shares = Shares();
  for (const auto& [name, share] : shares) {
    if (held_.count(name) == 0 && share[0] < kForgotten && share[1] < kForgotten &&
        share[2] < kForgotten) {
      for (Piece& piece : pieces_) {
        piece.queues.erase(name);
      }
    }
  }
}

// How much of what the piece says counts now.
double UsageHistory::Weight(const Piece& piece) const {
  double part = 1;
  if (width_ != 0 && piece.begin < at_ - params_.size) {
    part = static_cast<double>(piece.end - (at_ - params_.size)) /
           static_cast<double>(std::max<Millis>(piece.end - piece.begin, 1));
  }
  return std::clamp(part, 0.0, 1.0) * Kept(at_ - piece.end);
}

UsageHistory::Piece UsageHistory::Merged() const {
  Piece sum{at_, at_, {}, {}};
  for (const Piece& piece : pieces_) {
    sum.begin = std::min(sum.begin, piece.begin);
    const double weight = Weight(piece);
    Pour(piece.total, weight, &sum.total);
    for (const auto& [name, row] : piece.queues) {
      Pour(row, weight, &sum.queues[name]);
    }
  }
  return sum;
}

std::map<std::string, UsageHistory::Row> UsageHistory::Shares() const {
  Piece sum = Merged();
  std::map<std::string, Row> out;
  for (const auto& [name, held] : held_) {
    sum.queues.try_emplace(name);
  }
  for (const auto& [name, row] : sum.queues) {
    Row& share = out[name];
    for (std::size_t r = 0; r < share.size(); ++r) {
      share[r] = sum.total[r] > 0 ? std::min(row[r] / sum.total[r], 1.0) : 0;
    }
  }
  return out;
}

std::string UsageHistory::Encode() const {
  const auto text = [&](const std::deque<Piece>& pieces) {
    Json list = Json::array();
    for (const Piece& piece : pieces) {
      Json queues = Json::object();
      for (const auto& [name, row] : piece.queues) {
        queues[name] = RowJson(row);
      }
      list.push_back({{"begin", piece.begin},
                      {"end", piece.end},
                      {"total", RowJson(piece.total)},
                      {"queues", std::move(queues)}});
    }
    return Json{{"at", at_}, {"pieces", std::move(list)}}.dump();
  };
  std::string whole = text(pieces_);
  return whole.size() <= kTextMax ? whole : text({Merged()});
}

bool UsageHistory::Decode(const std::string& text) {
  const auto json = kube::ParseJson(text);
  if (!json.ok() || !json->is_object()) {
    return false;
  }
  const Json* at = kube::Find(*json, {"at"});
  const Json* list = kube::Find(*json, {"pieces"});
  if (at == nullptr || !at->is_number_integer() || list == nullptr || !list->is_array()) {
    return false;
  }
  std::deque<Piece> pieces;
  for (const Json& object : *list) {
    Piece piece;
    piece.begin = kube::FindInt(object, {"begin"}, -1);
    piece.end = kube::FindInt(object, {"end"}, -1);
    const Json* queues = kube::Find(object, {"queues"});
    if (piece.begin < 0 || piece.end < piece.begin || queues == nullptr || !queues->is_object() ||
        !ReadRow(kube::Find(object, {"total"}), &piece.total)) {
      return false;
    }
    for (const auto& [name, row] : queues->items()) {
      if (!ReadRow(&row, &piece.queues[name])) {
        return false;
      }
    }
    pieces.push_back(std::move(piece));
  }
  at_ = at->get<Millis>();
  pieces_ = std::move(pieces);
  total_held_ = {};
  held_.clear();
  return true;
}

}  // namespace sublet::scheduler
