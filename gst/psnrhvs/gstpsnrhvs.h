// The GObject of the element; gstpsnrhvs.cpp carries its documentation.
// SPDX-License-Identifier: LGPL-2.1-or-later
#pragma once

#include <gst/base/gstaggregator.h>

G_BEGIN_DECLS

#define GST_TYPE_PSNR_HVS (gst_psnr_hvs_get_type())
G_DECLARE_FINAL_TYPE(GstPsnrHvs, gst_psnr_hvs, GST, PSNR_HVS, GstAggregator)

GST_ELEMENT_REGISTER_DECLARE(psnrhvs)

G_END_DECLS
