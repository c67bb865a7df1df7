// Which backend an element takes, and what that means for its caps: everything that can be seen without a device.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include "cuda/cuda_engine.h"
#include "tests/gst/element_checks.h"

namespace psnrhvs::testing {
namespace {

const char kCudaFeature[] = "memory:CUDAMemory";

bool HaveDevice() {
#ifdef PSNRHVS_HAVE_CUDA
  return ProbeCudaDevices().ok();
#else
  return false;
#endif
}

bool OffersCuda(const GstCaps* caps) {
  for (guint i = 0; i < gst_caps_get_size(caps); ++i) {
    if (gst_caps_features_contains(gst_caps_get_features(caps, i), kCudaFeature)) return true;
  }
  return false;
}

std::string Pipeline(const std::string& properties) {
  const std::string source =
      "videotestsrc pattern=ball num-buffers=3 ! video/x-raw,format=I420,width=64,height=64 ! m.";
  return source + "ref_sink " + source + "dist_sink psnrhvs name=m " + properties + " ! fakesink";
}

GstPtr<GstElement> MakeElement(const std::string& backend) {
  GstPtr<GstElement> element(GST_ELEMENT(gst_object_ref_sink(gst_element_factory_make("psnrhvs", "m"))));
  gst_util_set_object_arg(G_OBJECT(element.get()), "backend", backend.c_str());
  return element;
}

GstPtr<GstCaps> QueryCaps(GstElement* element, const char* pad_name) {
  const GstPtr<GstPad> pad(gst_element_get_static_pad(element, pad_name));
  return GstPtr<GstCaps>(gst_pad_query_caps(pad.get(), nullptr));
}

START_TEST(auto_takes_the_device_if_there_is_one_and_else_the_processor) {
  const Reports reports = RunPipeline(Pipeline(""));
  CheckCounts(reports, 3, 0, 0);
  CheckAllInfinite(reports);
  CheckText(reports.pooled[0].backend, HaveDevice() ? "cuda" : "cpu");
}
END_TEST

START_TEST(cpu_computes_on_the_processor_whatever_is_there) {
  const Reports reports = RunPipeline(Pipeline("backend=cpu"));
  CheckCounts(reports, 3, 0, 0);
  CheckText(reports.pooled[0].backend, "cpu");
}
END_TEST

START_TEST(cuda_without_a_device_is_an_error_at_start_that_says_what_is_missing) {
  if (HaveDevice()) return;
#ifdef PSNRHVS_HAVE_CUDA
  const char* reason = "no CUDA driver";
#else
  const char* reason = "this build of psnrhvs has no CUDA backend";
#endif
  PipelineRun run(Pipeline("backend=cuda"));
  fail_if(run.SetState(GST_STATE_PAUSED), "the element started");
  CheckError(run.recorder().reports(), {"backend=cuda cannot be used", reason});
  // The failed start leaves an element that works.
  gst_util_set_object_arg(G_OBJECT(run.element("m").get()), "backend", "cpu");
  run.SetState(GST_STATE_NULL);
  run.recorder().Clear();
  CheckCounts(run.PlayToEnd(), 3, 0, 0);
}
END_TEST

START_TEST(device_that_does_not_exist_is_an_error_at_start) {
  if (!HaveDevice()) return;
  PipelineRun run(Pipeline("backend=cuda cuda-device-id=99"));
  fail_if(run.SetState(GST_STATE_PAUSED), "the element started");
  CheckError(run.recorder().reports(), {"backend=cuda cannot be used", "no CUDA device 99"});
}
END_TEST

START_TEST(templates_depend_on_the_build_and_offers_on_the_backend) {
#ifdef PSNRHVS_HAVE_CUDA
  const bool built = true;
#else
  const bool built = false;
#endif
  for (const char* name : {"ref_sink", "dist_sink", "src"}) {
    for (const char* backend : {"auto", "cpu", "cuda"}) {
      const GstPtr<GstElement> element = MakeElement(backend);
      const GstPtr<GstPad> pad(gst_element_get_static_pad(element.get(), name));
      const GstPtr<GstCaps> template_caps(gst_pad_get_pad_template_caps(pad.get()));
      fail_unless(OffersCuda(template_caps.get()) == built, "the template of %s", name);
      const bool expected = HaveDevice() && std::string(backend) != "cpu";
      fail_unless(OffersCuda(QueryCaps(element.get(), name).get()) == expected, "%s with backend=%s", name, backend);
    }
  }
}
END_TEST

START_TEST(cuda_memory_is_refused_by_the_cpu_backend_with_what_to_add) {
  const GstPtr<GstElement> probe = MakeElement("cpu");
  const GstPtr<GstPad> pad(gst_element_get_static_pad(probe.get(), "dist_sink"));
  const GstPtr<GstCaps> template_caps(gst_pad_get_pad_template_caps(pad.get()));
  if (!OffersCuda(template_caps.get())) return;  // no pad takes such caps in the first place
  TwoPads pads(TwoPads::Properties{{"backend", "cpu"}});
  pads.SetCaps(Side::kReference, "video/x-raw,format=NV12,width=64,height=64,framerate=25/1");
  pads.SetCaps(Side::kDistorted, "video/x-raw(memory:CUDAMemory),format=NV12,width=64,height=64,framerate=25/1");
  CheckError(pads.End(), {"dist_sink", "cudadownload", "backend=cuda"});
}
END_TEST

START_TEST(reference_is_offered_what_downstream_takes_and_distorted_is_not_limited_by_that) {
  PipelineRun run("psnrhvs name=m ! video/x-raw,format=NV12 ! fakesink");
  const GstPtr<GstElement> element = run.element("m");
  const GstPtr<GstCaps> nv12(gst_caps_from_string("video/x-raw,format=NV12"));
  const GstPtr<GstCaps> i420(gst_caps_from_string("video/x-raw,format=I420"));
  const GstPtr<GstCaps> reference = QueryCaps(element.get(), "ref_sink");
  const GstPtr<GstCaps> distorted = QueryCaps(element.get(), "dist_sink");
  fail_unless(gst_caps_can_intersect(reference.get(), nv12.get()));
  fail_if(gst_caps_can_intersect(reference.get(), i420.get()));
  fail_unless(gst_caps_can_intersect(distorted.get(), i420.get()));
}
END_TEST

Suite* BackendSuite() {
  Suite* suite = suite_create("element_backend");
  TCase* tests = tcase_create("backend");
  suite_add_tcase(suite, tests);
  tcase_add_test(tests, auto_takes_the_device_if_there_is_one_and_else_the_processor);
  tcase_add_test(tests, cpu_computes_on_the_processor_whatever_is_there);
  tcase_add_test(tests, cuda_without_a_device_is_an_error_at_start_that_says_what_is_missing);
  tcase_add_test(tests, device_that_does_not_exist_is_an_error_at_start);
  tcase_add_test(tests, templates_depend_on_the_build_and_offers_on_the_backend);
  tcase_add_test(tests, cuda_memory_is_refused_by_the_cpu_backend_with_what_to_add);
  tcase_add_test(tests, reference_is_offered_what_downstream_takes_and_distorted_is_not_limited_by_that);
  return suite;
}

}  // namespace
}  // namespace psnrhvs::testing

int main(int argc, char** argv) {
  psnrhvs::testing::InitChecks(&argc, &argv);
  return gst_check_run_suite(psnrhvs::testing::BackendSuite(), "element_backend", __FILE__);
}
