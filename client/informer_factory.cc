// The thread that reads the streams of many informers.
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "client/backoff.h"
#include "client/informer.h"

namespace sublet::client {
namespace {

constexpr int kEventsPerTurn = 256;  // then another informer gets its turn
constexpr std::chrono::seconds kHealthyStream{1};

}  // namespace

// What the factory keeps per informer. `ready`, `busy`, `removed` and `next` belong to the signal's
// mutex; the rest to the thread that drives the source.
struct InformerFactory::Source {
  explicit Source(const Client& client, const InformerOptions& options)
      : informer(client, options) {}

  Informer informer;
  bool ready = true;
  bool busy = false;
  bool removed = false;
  std::optional<MonotonicTime> next;
  bool open = false;
  bool told = false;  // that it has synced
  MonotonicTime opened_at;
  Backoff backoff{std::chrono::milliseconds(200), std::chrono::seconds(15)};
  bool own_thread = false;
  std::thread thread;
};

namespace {

std::string IdOf(const InformerOptions& options) {
  return options.resource.ApiVersion() + "|" + options.resource.resource + "|" +
         options.namespace_name + "|" + options.label_selector + "|" + options.field_selector +
         (options.metadata_only ? "|m" : "|o");
}

}  // namespace

InformerFactory::InformerFactory(Client client)
    : client_(std::move(client)), signal_(std::make_shared<Signal>()) {}

InformerFactory::~InformerFactory() { Stop(); }

Informer& InformerFactory::For(const InformerOptions& options) {
  std::shared_ptr<Source> source;
  {
    MutexLock lock(signal_->mutex);
    std::shared_ptr<Source>& slot = signal_->sources[IdOf(options)];
    if (!slot) {
      slot = std::make_shared<Source>(client_, options);
      signal_->due.push_back(slot);
    }
    source = slot;
  }
  signal_->wake.NotifyAll();
  return source->informer;
}

void InformerFactory::Remove(Informer& informer) {
  std::shared_ptr<Source> source;
  {
    MutexLock lock(signal_->mutex);
    for (auto at = signal_->sources.begin(); at != signal_->sources.end(); ++at) {
      if (&at->second->informer == &informer) {
        source = at->second;
        signal_->sources.erase(at);
        break;
      }
    }
    if (!source) {
      return;
    }
    source->removed = true;
  }
  StopInformer(source->informer);
  signal_->wake.NotifyAll();
  {
    MutexLock lock(signal_->mutex);
    while (source->busy) {
      signal_->wake.Wait(signal_->mutex);
    }
  }
  if (source->thread.joinable()) {
    source->thread.join();
  }
}

void InformerFactory::OnSynced(std::function<void()> callback) {
  MutexLock lock(signal_->mutex);
  signal_->on_synced = std::move(callback);
}

void InformerFactory::TellSynced(Source& source) {
  if (source.told || !source.informer.synced()) {
    return;
  }
  source.told = true;
  std::function<void()> callback;
  {
    MutexLock lock(signal_->mutex);
    callback = signal_->on_synced;
  }
  if (callback) {
    callback();
  }
}

void InformerFactory::Start() {
  MutexLock lock(signal_->mutex);
  if (!signal_->started && !signal_->stopped) {
    signal_->started = true;
    thread_ = std::thread([this] {
      pthread_setname_np(pthread_self(), "informers");
      Run();
    });
  }
}

bool InformerFactory::WaitSynced(Deadline deadline) {
  std::vector<std::shared_ptr<Source>> sources;
  {
    MutexLock lock(signal_->mutex);
    for (const auto& [id, source] : signal_->sources) {
      sources.push_back(source);
    }
  }
  for (const auto& source : sources) {
    if (!source->informer.WaitSynced(deadline)) {
      return false;
    }
  }
  return true;
}

void InformerFactory::StopInformer(Informer& informer) {
  {
    MutexLock lock(informer.mutex_);
    informer.stopped_ = true;
  }
  informer.synced_changed_.NotifyAll();
  std::shared_ptr<Stream> stream;
  {
    MutexLock lock(informer.mutex_);
    stream = informer.stream_;
  }
  if (stream) {
    stream->Close();
  }
}

void InformerFactory::Stop() {
  std::vector<std::shared_ptr<Source>> sources;
  {
    MutexLock lock(signal_->mutex);
    if (signal_->stopped) {
      return;
    }
    signal_->stopped = true;
    for (const auto& [id, source] : signal_->sources) {
      sources.push_back(source);
    }
  }
  signal_->wake.NotifyAll();
  for (const auto& source : sources) {
    StopInformer(source->informer);
  }
  if (thread_.joinable()) {
    thread_.join();
  }
  for (const auto& source : sources) {
    if (source->thread.joinable()) {
      source->thread.join();
    }
    source->informer.CloseStream();
  }
}

bool InformerFactory::Signal::MakeReady(const std::shared_ptr<Source>& source) {
  if (source->ready) {
    return false;
  }
  source->ready = true;
  if (source->busy || source->own_thread) {
    return false;  // who drives it looks again when it is done
  }
  due.push_back(source);
  return true;
}

void InformerFactory::Signal::TakeTimers(MonotonicTime now) {
  if (!earliest || *earliest > now) {
    return;
  }
  earliest.reset();
  for (const auto& [id, source] : sources) {
    if (source->next && *source->next <= now) {
      source->next.reset();
      MakeReady(source);
    } else if (source->next && (!earliest || *source->next < *earliest)) {
      earliest = source->next;
    }
  }
}

std::shared_ptr<InformerFactory::Source> InformerFactory::PickDue() {
  MutexLock lock(signal_->mutex);
  while (!signal_->stopped) {
    signal_->TakeTimers(std::chrono::steady_clock::now());
    while (!signal_->due.empty()) {
      std::shared_ptr<Source> source = std::move(signal_->due.front());
      signal_->due.pop_front();
      if (!source->removed) {
        source->ready = false;
        source->next.reset();
        source->busy = true;
        return source;
      }
    }
    if (signal_->earliest) {
      signal_->wake.WaitUntil(signal_->mutex, *signal_->earliest);
    } else {
      signal_->wake.Wait(signal_->mutex);
    }
  }
  return nullptr;
}

void InformerFactory::Run() {
  while (std::shared_ptr<Source> source = PickDue()) {
    const std::optional<MonotonicTime> next = Drive(source);
    bool waited_for = false;
    {
      MutexLock lock(signal_->mutex);
      source->busy = false;
      waited_for = source->removed;
      // `next` first: without it the source may have a thread of its own by now, which writes `open`.
      if (next && !source->open) {
        source->ready = false;  // of the stream that ended
      }
      if (std::exchange(source->ready, false)) {
        signal_->MakeReady(source);
      } else if (next) {
        source->next = next;
        signal_->earliest = signal_->earliest ? std::min(*signal_->earliest, *next) : *next;
      }
    }
    if (waited_for) {
      signal_->wake.NotifyAll();
    }
  }
}

std::optional<MonotonicTime> InformerFactory::Drive(const std::shared_ptr<Source>& source) {
  Informer& informer = source->informer;
  const auto later = [&] { return std::chrono::steady_clock::now() + source->backoff.Next(); };
  if (!source->open) {
    bool notifies = false;
    auto opened = informer.Open(
        [signal = signal_, weak = std::weak_ptr<Source>(source)] {
          const auto strong = weak.lock();
          bool tell = false;
          if (strong) {
            MutexLock lock(signal->mutex);
            tell = signal->MakeReady(strong);
          }
          if (tell) {
            signal->wake.NotifyAll();
          }
        },
        &notifies);
    if (!opened.ok()) {
      // The first failure is normal while a server starts; later ones deserve a line.
      if (source->backoff.failures() == 3) {
        log::Warn("watch fails",
                  {{"resource", informer.options().resource.resource}, {"error", opened.error()}});
      }
      return later();
    }
    source->open = true;
    source->opened_at = std::chrono::steady_clock::now();
    TellSynced(*source);  // a list brings the first state before the stream
    if (!notifies) {
      HandOver(source);
      return std::nullopt;
    }
  }
  const Informer::PumpResult pumped = informer.Pump(MonotonicTime::min(), kEventsPerTurn);
  TellSynced(*source);
  switch (pumped) {
    case Informer::PumpResult::kIdle: return std::nullopt;
    case Informer::PumpResult::kMore: return std::chrono::steady_clock::now();
    case Informer::PumpResult::kReopen: break;
  }
  source->open = false;
  return Reopen(*source);
}

MonotonicTime InformerFactory::Reopen(Source& source) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  // A stream that lived is followed by the next one at once; one that ended at birth is a failure.
  if (now - source.opened_at >= kHealthyStream || source.informer.event_seen_) {
    source.backoff.Reset();
    return now;
  }
  return now + source.backoff.Next();
}

void InformerFactory::HandOver(const std::shared_ptr<Source>& source) {
  MutexLock lock(signal_->mutex);
  if (signal_->stopped || source->removed) {
    return;
  }
  source->own_thread = true;
  source->thread = std::thread([this, source] {
    pthread_setname_np(pthread_self(), "informer");
    RunAlone(*source);
  });
}

void InformerFactory::RunAlone(Source& source) {
  for (;;) {
    std::optional<MonotonicTime> next;
    if (!source.open) {
      bool notifies = false;
      if (source.informer.Open([] {}, &notifies).ok()) {
        source.open = true;
        source.opened_at = std::chrono::steady_clock::now();
      } else {
        next = std::chrono::steady_clock::now() + source.backoff.Next();
      }
    }
    TellSynced(source);
    // Event by event, since the wait has no end: the first state must be told when it is there.
    if (source.open &&
        source.informer.Pump(MonotonicTime::max(), 1) == Informer::PumpResult::kReopen) {
      source.open = false;
      next = Reopen(source);
    }
    TellSynced(source);
    MutexLock lock(signal_->mutex);
    while (!signal_->stopped && !source.removed && next &&
           std::chrono::steady_clock::now() < *next) {
      signal_->wake.WaitUntil(signal_->mutex, *next);
    }
    if (signal_->stopped || source.removed) {
      return;
    }
  }
}

}  // namespace sublet::client
