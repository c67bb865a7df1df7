// SPDX-License-Identifier: LGPL-2.1-or-later
#include <gst/gst.h>

#include "gst/psnrhvs/gstpsnrhvs.h"

static gboolean plugin_init(GstPlugin* plugin) { return GST_ELEMENT_REGISTER(psnrhvs, plugin); }

#define PACKAGE "psnrhvs"
GST_PLUGIN_DEFINE(GST_VERSION_MAJOR, GST_VERSION_MINOR, psnrhvs, "Exact PSNR-HVS of video against a reference",
                  plugin_init, PSNRHVS_VERSION, "LGPL", "psnrhvs", "psnrhvs")
