// Logging: a constant message plus key/value pairs, one line each on standard error:
//   2026-11-01T10:00:00.123Z info  serving listen=127.0.0.1:6443 version=v0.1.0
// Levels: error = someone must act, warn = degraded, info = lifecycle, debug = one line per piece
// of work. Never a secret, never an object's content. Threads: any.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/status.h"

namespace sublet::log {

enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError, kOff };

struct Field {
  Field(std::string_view k, std::string_view v) : key(k), value(v) {}
  Field(std::string_view k, const char* v) : key(k), value(v) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, bool v) : key(k), value(v ? "true" : "false") {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Field(std::string_view k, T v)
      : key(k), value(std::to_string(v)) {}
  Field(std::string_view k, double v) : key(k), value(std::to_string(v)) {}
  Field(std::string_view k, const Status& v) : key(k), value(v.message()) {}

  std::string_view key;
  std::string value;
};
using Fields = std::initializer_list<Field>;

// Sets the lowest level that is written (default kInfo).
void SetLevel(Level level);
bool Enabled(Level level);

void Write(Level level, std::string_view message, Fields fields);
inline void Debug(std::string_view message, Fields fields = {}) {
  if (Enabled(Level::kDebug)) {
    Write(Level::kDebug, message, fields);
  }
}
inline void Info(std::string_view message, Fields fields = {}) {
  Write(Level::kInfo, message, fields);
}
inline void Warn(std::string_view message, Fields fields = {}) {
  Write(Level::kWarn, message, fields);
}
inline void Error(std::string_view message, Fields fields = {}) {
  Write(Level::kError, message, fields);
}

}  // namespace sublet::log
