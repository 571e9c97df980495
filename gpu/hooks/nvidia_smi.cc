// nvidia-smi for containers: a small static program that shows the pod its own slice, from the
// pages gpud gives it. It asks no driver, so it works in every image, with and without a C library.
//   nvidia-smi            a table
//   nvidia-smi -L         one line per device
//   nvidia-smi --query-gpu=name,memory.total,... --format=csv[,noheader][,nounits]
#include <stdio.h>
#include <string.h>

#include "gpu/hooks/observer.h"

namespace sublet::gpu {
namespace {

constexpr unsigned long long kMebibyte = 1ULL << 20;

unsigned long long UsedMebibytes(const SliceView& view, unsigned device) {
  return (view.usage->devices[device].total.load() + kMebibyte - 1) / kMebibyte;
}

int List(const SliceView& view) {
  for (unsigned i = 0; i < view.control->device_count; ++i) {
    printf("GPU %u: %s (UUID: %s)\n", i, view.control->devices[i].model,
           view.control->devices[i].uuid);
  }
  return 0;
}

int Table(const SliceView& view) {
  const char* line =
      "+-----------------------------------------------------------------------------+\n";
  printf("%s| Sublet slice %-62.62s |\n%s", line, view.control->slice, line);
  printf("| GPU  Name                                        Memory-Usage        Share |\n%s",
         line);
  for (unsigned i = 0; i < view.control->device_count; ++i) {
    const ControlDevice& device = view.control->devices[i];
    char memory[64];
    snprintf(memory, sizeof memory, "%lluMiB / %lluMiB", UsedMebibytes(view, i),
             static_cast<unsigned long long>(device.cap_bytes / kMebibyte));
    printf("| %3u  %-34.34s %24s %8.1f %% |\n", i, device.model, memory, device.share_milli / 10.0);
  }
  printf("%s| Processes:   GPU        PID                                  GPU Memory Usage |\n%s",
         line, line);
  for (int slot = 0; slot < kPageSlotsMax; ++slot) {
    const Slot& process = view.usage->slots[slot];
    for (unsigned i = 0; process.generation.load() != 0 && i < view.control->device_count; ++i) {
      if (const auto bytes = SlotBytes(process, static_cast<int>(i)); bytes != 0) {
        printf("|              %3u %10u %43lluMiB |\n", i, process.pid.load(),
               static_cast<unsigned long long>((bytes + kMebibyte - 1) / kMebibyte));
      }
    }
  }
  printf("%s", line);
  return 0;
}

// One column of --query-gpu; false: not a name this program knows.
bool Print(const SliceView& view, unsigned i, const char* name, size_t length, bool units) {
  const ControlDevice& device = view.control->devices[i];
  const auto is = [&](const char* known) {
    return strlen(known) == length && strncmp(known, name, length) == 0;
  };
  const unsigned long long total = device.cap_bytes / kMebibyte;
  const unsigned long long used = UsedMebibytes(view, i);
  const char* unit = units ? " MiB" : "";
  if (is("index")) {
    printf("%u", i);
  } else if (is("name") || is("gpu_name")) {
    printf("%s", device.model);
  } else if (is("uuid") || is("gpu_uuid")) {
    printf("%s", device.uuid);
  } else if (is("memory.total")) {
    printf("%llu%s", total, unit);
  } else if (is("memory.used")) {
    printf("%llu%s", used, unit);
  } else if (is("memory.free")) {
    printf("%llu%s", total > used ? total - used : 0, unit);
  } else {
    return false;
  }
  return true;
}

int Query(const SliceView& view, const char* names, const char* format) {
  const bool header = strstr(format, "noheader") == nullptr;
  const bool units = strstr(format, "nounits") == nullptr;
  if (header) {
    printf("%s\n", names);
  }
  for (unsigned i = 0; i < view.control->device_count; ++i) {
    for (const char* at = names; *at != 0;) {
      const size_t length = strcspn(at, ",");
      if (!Print(view, i, at, length, units)) {
        fprintf(stderr, "Field \"%.*s\" is not a valid field to query.\n", static_cast<int>(length),
                at);
        return 2;
      }
      at += length;
      if (*at == ',') {
        printf(", ");
        ++at;
      }
    }
    printf("\n");
  }
  return 0;
}

int Main(int count, char** arguments) {
  SliceView view;
  if (!OpenSliceView(&view)) {
    fprintf(stderr,
            "NVIDIA-SMI has failed: this container has no GPU slice, or the node's gpud does not "
            "answer.\n");
    return 9;
  }
  const char* query = nullptr;
  const char* format = "";
  for (int i = 1; i < count; ++i) {
    if (strcmp(arguments[i], "-L") == 0 || strcmp(arguments[i], "--list-gpus") == 0) {
      return List(view);
    }
    if (strncmp(arguments[i], "--query-gpu=", 12) == 0) {
      query = arguments[i] + 12;
    } else if (strncmp(arguments[i], "--format=", 9) == 0) {
      format = arguments[i] + 9;
    } else {
      fprintf(stderr,
              "unknown option %s\nusage: nvidia-smi [-L | --query-gpu=FIELDS "
              "--format=csv[,noheader][,nounits]]\n",
              arguments[i]);
      return 2;
    }
  }
  return query != nullptr ? Query(view, query, format) : Table(view);
}

}  // namespace
}  // namespace sublet::gpu

int main(int count, char** arguments) { return sublet::gpu::Main(count, arguments); }
