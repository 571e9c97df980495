#include "apiserver/metrics_handler.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace sublet::apiserver {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

double OpenFiles() {
  double count = 0;
  if (DIR* directory = ::opendir("/proc/self/fd")) {
    while (::readdir(directory) != nullptr) {
      ++count;
    }
    ::closedir(directory);
  }
  return count > 3 ? count - 3 : 0;  // ".", ".." and the one of this listing
}

// Pages of virtual and resident memory.
void ReadMemory(double* virtual_bytes, double* resident_bytes) {
  long virtual_pages = 0;
  long resident_pages = 0;
  if (std::FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%ld %ld", &virtual_pages, &resident_pages) != 2) {
      virtual_pages = resident_pages = 0;
    }
    std::fclose(file);
  }
  const double page = static_cast<double>(::sysconf(_SC_PAGESIZE));
  *virtual_bytes = static_cast<double>(virtual_pages) * page;
  *resident_bytes = static_cast<double>(resident_pages) * page;
}

void WriteProcess(std::string& out, double start_seconds) {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  Metrics::AppendSample(out, "process_cpu_seconds_total",
                        "Total user and system CPU time spent in seconds.", "counter",
                        Seconds(usage.ru_utime) + Seconds(usage.ru_stime));
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  Metrics::AppendSample(out, "process_max_fds", "Maximum number of open file descriptors.", "gauge",
                        static_cast<double>(limit.rlim_cur));
  Metrics::AppendSample(out, "process_open_fds", "Number of open file descriptors.", "gauge",
                        OpenFiles());
  double virtual_bytes = 0;
  double resident_bytes = 0;
  ReadMemory(&virtual_bytes, &resident_bytes);
  Metrics::AppendSample(out, "process_resident_memory_bytes", "Resident memory size in bytes.",
                        "gauge", resident_bytes);
  Metrics::AppendSample(out, "process_start_time_seconds",
                        "Start time of the process since unix epoch in seconds.", "gauge",
                        start_seconds);
  Metrics::AppendSample(out, "process_virtual_memory_bytes", "Virtual memory size in bytes.",
                        "gauge", virtual_bytes);
}

}  // namespace

MetricsHandler::MetricsHandler(Metrics& metrics) : metrics_(metrics) {
  const double start_seconds =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  metrics_.OnScrape([start_seconds](std::string& out) { WriteProcess(out, start_seconds); });
}

void MetricsHandler::Handle(std::unique_ptr<Request>, ResponderPtr responder) {
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = Body(metrics_.Text());
  responder->Send(std::move(response));
}

}  // namespace sublet::apiserver
