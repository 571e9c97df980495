#include "apiserver/handlers/continue_token.h"
#include "apiserver/handlers/options.h"
#include "apiserver/handlers/read_common.h"
#include "apiserver/handlers/respond.h"
#include "apiserver/handlers/selection.h"
#include "apiserver/handlers/verbs.h"

namespace sublet::apiserver {
namespace {

constexpr std::string_view kContinueExpired =
    "The provided continue parameter is too old to display a consistent list result. You can start "
    "a new list without the continue parameter, or use the continue token in this response to "
    "retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first "
    "chunk was returned and now may show up in the list.";

// Records read per step when a selector thins them out.
constexpr std::size_t kFilterStep = 500;

struct ListPlan {
  std::string prefix;
  std::string start_after;         // full key, exclusive
  storage::Revision revision = 0;  // 0 = current
  std::size_t limit = 0;
  bool continued = false;
};

struct ListPage {
  std::vector<storage::Record> records;
  storage::Revision revision = 0;
  std::string continue_token;
  std::int64_t remaining = 0;
};

// Which snapshot answers: Kubernetes' table of resourceVersion and resourceVersionMatch.
Result<ListPlan> MakePlan(const Call& call, const ListOptions& options,
                          const Selection& selection) {
  const auto& store = *call.context->store;
  ListPlan plan;
  std::string_view namespace_name = call.namespace_name();
  if (namespace_name.empty()) {
    namespace_name = selection.single_namespace();
  }
  plan.prefix = call.type().CollectionPrefix(namespace_name);
  plan.limit = options.limit > 0 ? static_cast<std::size_t>(options.limit) : 0;
  if (!options.continue_token.empty()) {
    SUBLET_TRY(ContinueToken token, DecodeContinue(options.continue_token));
    if (!options.resource_version.empty() && options.resource_version != "0") {
      return BadRequest("specifying resource version is not allowed when using continue");
    }
    if (!token.start.empty() && token.start.back() == '\0') {
      token.start.pop_back();
    }
    plan.start_after = plan.prefix + token.start;
    plan.revision = token.revision > 0 ? token.revision : 0;
    plan.continued = true;
    SUBLET_RETURN_IF_ERROR(CheckNotInFuture(store, plan.revision));
    return plan;
  }
  if (auto reached = CheckNotInFuture(store, options.revision); !reached.ok()) {
    if (options.match != RevisionMatch::kExact) {
      return std::move(reached).error();
    }
    // What will be at a revision to come is not worth waiting for.
    StatusDetails details = reached.error().details();
    details.retry_after_seconds = 0;
    return Status(reached.error()).With(std::move(details));
  }
  if (options.resource_version == "0") {
    plan.limit = 0;  // served whole, as from upstream's watch cache
  } else if (options.match == RevisionMatch::kExact ||
             (options.revision > 0 && options.match == RevisionMatch::kUnset && plan.limit > 0)) {
    plan.revision = options.revision;
  }
  return plan;
}

// Reads until `limit` matching records or the end, all from one revision.
Result<ListPage> ReadPage(const storage::Store& store, const ListPlan& plan,
                          const Selection& selection) {
  ListPage page;
  if (selection.empty()) {
    SUBLET_TRY(auto result, store.List(plan.prefix, plan.start_after, plan.limit, plan.revision));
    page.records = std::move(result.records);
    page.revision = result.revision;
    if (result.more && !page.records.empty()) {
      page.remaining = result.remaining;
      page.continue_token = EncodeContinue(
          {page.revision, page.records.back().key.substr(plan.prefix.size()) + '\0'});
    }
    return page;
  }
  std::string after = plan.start_after;
  storage::Revision revision = plan.revision;
  while (true) {
    const std::size_t step = plan.limit == 0 ? 0 : std::max(plan.limit, kFilterStep);
    SUBLET_TRY(auto result, store.List(plan.prefix, after, step, revision));
    revision = result.revision;
    page.revision = revision;
    for (std::size_t i = 0; i < result.records.size(); ++i) {
      auto& record = result.records[i];
      after = record.key;
      if (!selection.Matches(record.key, *record.value)) {
        continue;
      }
      page.records.push_back(std::move(record));
      if (plan.limit != 0 && page.records.size() == plan.limit) {
        if (result.more || i + 1 < result.records.size()) {
          page.continue_token = EncodeContinue({revision, after.substr(plan.prefix.size()) + '\0'});
        }
        return page;
      }
    }
    if (!result.more) {
      return page;
    }
  }
}

// A selector that names one object reads one key.
ListPage ReadSingle(const Call& call, const Selection& selection, std::string_view namespace_name) {
  ListPage page;
  const auto& store = *call.context->store;
  // The revision first: a write in between only makes the answer newer than it says, never older.
  page.revision = store.CurrentRevision();
  auto record = store.Get(call.type().Key(namespace_name, selection.single_name()));
  if (record && selection.Matches(record->key, *record->value)) {
    page.revision = std::max(page.revision, record->mod_revision);
    page.records.push_back(std::move(*record));
  }
  return page;
}

void SendExpired(Call& call, const ListPlan& plan) {
  if (!plan.continued) {
    return SendError(call, Expired("The resourceVersion for the provided list is too old."));
  }
  const std::string token =
      EncodeContinue({-1, plan.start_after.substr(plan.prefix.size()) + '\0'});
  SendError(call, Expired(kContinueExpired), token);
}

void SendPage(Call& call, const ListPage& page) {
  const ObjectWriter writer(*call.resource, call.form, call.context->clock->Now());
  std::vector<Body::Piece> pieces;
  pieces.reserve(page.records.size() * 2 + 2);
  PieceSink sink(pieces);
  sink.Own(writer.ListHead(page.revision, page.continue_token, page.remaining));
  bool first = true;
  for (const auto& record : page.records) {
    writer.ListItem(sink, record.value, first);
    first = false;
  }
  sink.Literal(writer.ListTail());
  SendPieces(call, 200, std::move(pieces));
}

}  // namespace

void HandleList(CallPtr call) {
  const auto options = ParseListOptions(call->request->query);
  if (!options.ok()) {
    return SendError(*call, options.error());
  }
  const auto selection =
      Selection::Parse(*call->resource, options->label_selector, options->field_selector);
  if (!selection.ok()) {
    return SendError(*call, selection.error());
  }
  const auto plan = MakePlan(*call, *options, *selection);
  if (!plan.ok()) {
    return SendError(*call, plan.error());
  }
  const std::string_view namespace_name = call->namespace_name().empty()
                                              ? selection->single_namespace()
                                              : std::string_view(call->namespace_name());
  if (!selection->single_name().empty() && plan->revision == 0 && !plan->continued &&
      (!namespace_name.empty() || !call->type().namespaced)) {
    return SendPage(*call, ReadSingle(*call, *selection, namespace_name));
  }
  const auto page = ReadPage(*call->context->store, *plan, *selection);
  if (!page.ok()) {
    if (page.error().Is(Reason::kExpired)) {
      return SendExpired(*call, *plan);
    }
    return SendError(*call, page.error());
  }
  SendPage(*call, *page);
}

}  // namespace sublet::apiserver
