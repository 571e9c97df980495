#include "gpu/api/request.h"

#include <set>
#include <utility>
#include <vector>

namespace sublet::gpu {
namespace {

using Annotations = std::map<std::string, std::string, std::less<>>;

// Parses digits[.digits] with at most `decimals` digits after the point, scaled by 10^decimals.
// Returns nullopt for anything else (signs, spaces, exponents, NaN, more than 15 digits in front).
std::optional<std::int64_t> ParseScaled(std::string_view text, int decimals) {
  std::int64_t value = 0;
  int whole_digits = 0;
  std::size_t at = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
    if (++whole_digits > 9) {
      return std::nullopt;
    }
    value = value * 10 + (text[at] - '0');
  }
  int fraction_digits = 0;
  if (at < text.size() && text[at] == '.' && decimals > 0) {
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      if (++fraction_digits > decimals) {
        return std::nullopt;
      }
      value = value * 10 + (text[at] - '0');
    }
    if (fraction_digits == 0) {
      return std::nullopt;
    }
  }
  if (at != text.size() || whole_digits == 0) {
    return std::nullopt;
  }
  for (; fraction_digits < decimals; ++fraction_digits) {
    value *= 10;
  }
  return value;
}

class Reader {
 public:
  explicit Reader(const Annotations& annotations) : annotations_(annotations) {}

  const std::string* Find(std::string_view key) {
    const auto found = annotations_.find(key);
    if (found == annotations_.end()) {
      return nullptr;
    }
    any_ = true;
    return &found->second;
  }

  // Sets *out from the annotation when it is there and within [low, high].
  template <typename T>
  void Number(std::string_view key, int decimals, std::int64_t low, std::int64_t high,
              std::string_view expectation, T* out) {
    const std::string* text = Find(key);
    if (text == nullptr) {
      return;
    }
    const auto value = ParseScaled(*text, decimals);
    if (!value || *value < low || *value > high) {
      Bad(key, *text, expectation);
      return;
    }
    *out = static_cast<T>(*value);
  }

  void Bad(std::string_view key, std::string_view value, std::string_view expectation) {
    // The value is the tenant's text: shown shortened, so that an error stays small.
    const std::string shown(value.substr(0, 64));
    causes_.push_back({"FieldValueInvalid",
                       "Invalid value: \"" + shown + "\": must be " + std::string(expectation),
                       "metadata.annotations[" + std::string(key) + "]"});
  }
  void Clash(std::string_view key, std::string_view why) {
    causes_.push_back({"FieldValueForbidden", "Forbidden: " + std::string(why),
                       "metadata.annotations[" + std::string(key) + "]"});
  }

  bool any() const { return any_; }
  std::vector<StatusCause>& causes() { return causes_; }

 private:
  const Annotations& annotations_;
  bool any_ = false;
  std::vector<StatusCause> causes_;
};

// DNS label, as container names are.
bool IsContainerName(std::string_view name) {
  if (name.empty() || name.size() > 63 || name.front() == '-' || name.back() == '-') {
    return false;
  }
  for (const char c : name) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-')) {
      return false;
    }
  }
  return true;
}

void ReadCompute(Reader& reader, GpuRequest& request) {
  reader.Number(kWeightAnnotation, 0, 1, 1'000'000, "a whole number from 1 to 1000000",
                &request.weight);
  const std::string_view percent =
      "a percentage of one GPU from 1 to 100 with at most one digit after the point";
  reader.Number(kRequestAnnotation, 1, 10, kShareMilliWhole, percent, &request.request_milli);
  reader.Number(kLimitAnnotation, 1, 10, kShareMilliWhole, percent, &request.limit_milli);
  if (request.request_milli > request.limit_milli) {
    reader.Clash(kRequestAnnotation, "compute-request must not be above compute-limit");
  }
  if (const std::string* mode = reader.Find(kModeAnnotation)) {
    if (*mode == "strict") {
      request.mode = ComputeMode::kStrict;
    } else if (*mode != "fair") {
      reader.Bad(kModeAnnotation, *mode, "fair or strict");
    }
  }
}

}  // namespace

Result<std::optional<GpuRequest>> ParseGpuRequest(const Annotations& annotations) {
  Reader reader(annotations);
  GpuRequest request;
  const bool has_fraction = annotations.contains(kFractionAnnotation);
  const bool has_memory = annotations.contains(kMemoryAnnotation);
  reader.Number(kFractionAnnotation, 9, 1, kFractionNanoWhole - 1,
                "a decimal number greater than 0 and less than 1", &request.fraction_nano);
  std::int64_t mebibytes = 0;
  reader.Number(kMemoryAnnotation, 0, 1, 999'999'999, "a positive whole number of MiB", &mebibytes);
  request.memory_bytes = mebibytes * kBytesPerMebibyte;
  if (has_fraction && has_memory) {
    reader.Clash(kMemoryAnnotation, "cannot request both GPU and GPU memory");
  }
  reader.Number(kNumDevicesAnnotation, 0, 1, kSliceDevicesMax, "a whole number from 1 to 16",
                &request.num_devices);
  if (const std::string* name = reader.Find(kContainerAnnotation)) {
    if (!IsContainerName(*name)) {
      reader.Bad(kContainerAnnotation, *name, "the name of a container of the pod");
    }
    request.container_name = *name;
  }
  ReadCompute(reader, request);
  if (!reader.any()) {
    return std::optional<GpuRequest>();
  }
  if (!has_fraction && !has_memory) {
    for (const std::string_view key : {kNumDevicesAnnotation, kContainerAnnotation}) {
      if (annotations.contains(key)) {
        reader.Clash(key, "only allowed together with gpu-fraction or gpu-memory");
      }
    }
  }
  if (!reader.causes().empty()) {
    return Invalid("", "Pod", "", std::move(reader.causes()));
  }
  return std::optional<GpuRequest>(std::move(request));
}

Result<SliceDevice> AmountsOn(const GpuRequest& request, std::string_view uuid,
                              std::int64_t device_memory_bytes) {
  SliceDevice device{.uuid = std::string(uuid)};
  const auto whole = static_cast<__int128>(device_memory_bytes);
  if (request.memory_bytes > 0) {
    device.memory_bytes = request.memory_bytes;
  } else if (request.fraction_nano > 0) {
    device.memory_bytes =
        static_cast<std::int64_t>(whole * request.fraction_nano / kFractionNanoWhole);
  } else {
    device.memory_bytes = device_memory_bytes;
  }
  if (device.memory_bytes > device_memory_bytes || device.memory_bytes <= 0) {
    return Invalid("", "Pod", "",
                   {{"FieldValueInvalid",
                     "asks for " + std::to_string(device.memory_bytes) +
                         " bytes of a device with " + std::to_string(device_memory_bytes),
                     "metadata.annotations[" + std::string(kMemoryAnnotation) + "]"}});
  }
  if (request.request_milli > 0) {
    device.share_milli = request.request_milli;
  } else {
    const auto share =
        static_cast<__int128>(device.memory_bytes) * kShareMilliWhole / device_memory_bytes;
    device.share_milli = share < 1 ? 1 : static_cast<std::int32_t>(share);
  }
  return device;
}

ComputePolicy PolicyOf(const GpuRequest& request) {
  return {.weight = request.weight, .limit_milli = request.limit_milli, .mode = request.mode};
}

Result<void> ValidateSliceSpec(std::string_view slice_name, const GpuSliceSpec& spec) {
  std::vector<StatusCause> causes;
  const auto bad = [&](std::string field, std::string message) {
    causes.push_back(
        {"FieldValueInvalid", "Invalid value: " + std::move(message), std::move(field)});
  };
  if (spec.node.empty()) {
    bad("spec.node", "must name a node");
  }
  if (spec.devices.empty() || spec.devices.size() > kSliceDevicesMax) {
    bad("spec.devices", "must have 1 to 16 entries");
  }
  std::set<std::string_view> seen;
  for (std::size_t i = 0; i < spec.devices.size() && i < kSliceDevicesMax; ++i) {
    const SliceDevice& device = spec.devices[i];
    const std::string at = "spec.devices[" + std::to_string(i) + "].";
    if (device.uuid.empty() || device.uuid.size() > 63 || !seen.insert(device.uuid).second) {
      bad(at + "uuid", "must be a device's UUID, each device once");
    }
    if (device.memory_bytes <= 0) {
      bad(at + "memoryBytes", "must be positive");
    }
    if (device.share_milli < 1 || device.share_milli > kShareMilliWhole) {
      bad(at + "shareMilli", "must be from 1 to 1000");
    }
  }
  if (spec.compute.weight < 0 || spec.compute.weight > 1'000'000) {
    bad("spec.compute.weight", "must be from 0 to 1000000");
  }
  if (spec.compute.limit_milli < 1 || spec.compute.limit_milli > kShareMilliWhole) {
    bad("spec.compute.limitMilli", "must be from 1 to 1000");
  }
  if (!causes.empty()) {
    return Invalid(kGroup, kSliceKind, slice_name, std::move(causes));
  }
  return Ok();
}

}  // namespace sublet::gpu
