// SPDX-License-Identifier: GPL-2.0-only
/*
 * fakegpu: a PCI root bus in a domain of its own, with functions on it that
 * look like NVIDIA H100 GPUs, so that the genuine driver loads and probes.
 *
 * The GPUs' registers are RAM that the kernel was told to leave alone
 * by memmap= on its command line, 64 MiB for each GPU from base= on and some
 * more at both ends (of two equal ranges the resource tree would put the
 * reserved one below ours, in the way of the BARs). What the driver writes
 * sticks, nothing ever happens. The driver's control device works in full;
 * opening a GPU ends in the driver's own error, since no firmware answers.
 */
#include <linux/io.h>
#include <linux/ioport.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sizes.h>
#include <linux/spinlock.h>

#define FAKEGPU_MAX	4
#define FAKEGPU_SPAN	SZ_64M		/* of the window, for each GPU */

/* BARs within a GPU's span: registers, memory window, instance memory */
#define REGS_SIZE	SZ_16M
#define FB_OFFSET	SZ_16M
#define FB_SIZE		SZ_16M
#define INST_OFFSET	SZ_32M
#define INST_SIZE	SZ_32M

/* what an H100 SXM5 80GB says of itself */
#define H100_DEVICE	0x2330
#define H100_SUBSYSTEM	0x16c1
#define H100_CLASS	0x030200	/* 3D controller */
#define H100_REVISION	0xa1

/* registers that the driver reads before it knows the chip */
#define PMC_BOOT_0	0x000
#define PMC_BOOT_1	0x004
#define PMC_BOOT_42	0xa00
#define PMC_BOOT_0_GH100	0x180000a1
#define PMC_BOOT_42_GH100	0x180a1000

#define PM_CAP		0x60
#define EXP_CAP		0x78

static unsigned long base;
module_param(base, ulong, 0444);
MODULE_PARM_DESC(base, "physical address of the window kept aside by memmap=");

static unsigned int gpus = 1;
module_param(gpus, uint, 0444);
MODULE_PARM_DESC(gpus, "number of GPUs, 1 to 4");

static unsigned int domain = 1;
module_param(domain, uint, 0444);
MODULE_PARM_DESC(domain, "PCI domain of the bus");

/* Configuration space of one function; a bit of `writable` says which bits of `bytes` a write changes. */
struct fakegpu {
	u8 bytes[PCI_CFG_SPACE_EXP_SIZE];
	u8 writable[PCI_CFG_SPACE_EXP_SIZE];
};

static struct fakegpu fakes[FAKEGPU_MAX];
static DEFINE_SPINLOCK(config_lock);
static struct pci_sysdata sysdata;
static struct resource window;
static struct pci_bus *root_bus;

static struct fakegpu *find(struct pci_bus *bus, unsigned int devfn, int where, int size)
{
	if (bus->number || PCI_FUNC(devfn) || PCI_SLOT(devfn) >= gpus)
		return NULL;
	if (where < 0 || where + size > PCI_CFG_SPACE_EXP_SIZE)
		return NULL;
	return &fakes[PCI_SLOT(devfn)];
}

static int config_read(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 *value)
{
	struct fakegpu *fake = find(bus, devfn, where, size);
	unsigned long flags;

	if (!fake) {
		*value = ~0U;
		return PCIBIOS_DEVICE_NOT_FOUND;
	}
	*value = 0;
	spin_lock_irqsave(&config_lock, flags);
	memcpy(value, fake->bytes + where, size);
	spin_unlock_irqrestore(&config_lock, flags);
	return PCIBIOS_SUCCESSFUL;
}

static int config_write(struct pci_bus *bus, unsigned int devfn, int where, int size, u32 value)
{
	struct fakegpu *fake = find(bus, devfn, where, size);
	unsigned long flags;
	int i;

	if (!fake)
		return PCIBIOS_DEVICE_NOT_FOUND;
	spin_lock_irqsave(&config_lock, flags);
	for (i = where; i < where + size; i++, value >>= 8) {
		u8 mask = fake->writable[i];

		fake->bytes[i] = (fake->bytes[i] & ~mask) | (value & mask);
	}
	spin_unlock_irqrestore(&config_lock, flags);
	return PCIBIOS_SUCCESSFUL;
}

static struct pci_ops config_ops = {
	.read = config_read,
	.write = config_write,
};

static void put16(struct fakegpu *fake, int where, u16 value)
{
	memcpy(fake->bytes + where, &value, sizeof(value));
}

static void put32(struct fakegpu *fake, int where, u32 value)
{
	memcpy(fake->bytes + where, &value, sizeof(value));
}

/* A 64-bit prefetchable memory BAR; the address bits above the size can be written, the type bits cannot. */
static void put_bar(struct fakegpu *fake, int number, u64 address, u64 size)
{
	int where = PCI_BASE_ADDRESS_0 + 4 * number;
	u64 value = address | PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;
	u64 mask = ~(size - 1);

	memcpy(fake->bytes + where, &value, sizeof(value));
	memcpy(fake->writable + where, &mask, sizeof(mask));
}

static void make_config(struct fakegpu *fake, u64 start)
{
	memset(fake, 0, sizeof(*fake));
	put16(fake, PCI_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put16(fake, PCI_DEVICE_ID, H100_DEVICE);
	put16(fake, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	put16(fake, PCI_STATUS, PCI_STATUS_CAP_LIST);
	put32(fake, PCI_CLASS_REVISION, (H100_CLASS << 8) | H100_REVISION);
	put16(fake, PCI_SUBSYSTEM_VENDOR_ID, PCI_VENDOR_ID_NVIDIA);
	put16(fake, PCI_SUBSYSTEM_ID, H100_SUBSYSTEM);
	put_bar(fake, 0, start, REGS_SIZE);
	put_bar(fake, 2, start + FB_OFFSET, FB_SIZE);
	put_bar(fake, 4, start + INST_OFFSET, INST_SIZE);
	fake->bytes[PCI_INTERRUPT_LINE] = 11;
	fake->bytes[PCI_INTERRUPT_PIN] = 1;
	put16(fake, PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER);
	fake->writable[PCI_COMMAND] = 0xff;
	fake->writable[PCI_COMMAND + 1] = 0x07;
	fake->writable[PCI_INTERRUPT_LINE] = 0xff;

	fake->bytes[PCI_CAPABILITY_LIST] = PM_CAP;
	fake->bytes[PM_CAP] = PCI_CAP_ID_PM;
	fake->bytes[PM_CAP + PCI_CAP_LIST_NEXT] = EXP_CAP;
	put16(fake, PM_CAP + PCI_PM_PMC, 3);
	fake->writable[PM_CAP + PCI_PM_CTRL] = PCI_PM_CTRL_STATE_MASK;

	/* below a root bus without a port, a function is an integrated endpoint */
	fake->bytes[EXP_CAP] = PCI_CAP_ID_EXP;
	put16(fake, EXP_CAP + PCI_EXP_FLAGS, 2 | (PCI_EXP_TYPE_RC_END << 4));
}

static int make_registers(u64 start)
{
	void __iomem *regs = ioremap(start, REGS_SIZE);

	if (!regs)
		return -ENOMEM;
	memset_io(regs, 0, REGS_SIZE);
	writel(PMC_BOOT_0_GH100, regs + PMC_BOOT_0);
	writel(0, regs + PMC_BOOT_1);
	writel(PMC_BOOT_42_GH100, regs + PMC_BOOT_42);
	iounmap(regs);
	return 0;
}

static int __init fakegpu_init(void)
{
	LIST_HEAD(resources);
	unsigned int i;
	int rc;

	if (gpus < 1 || gpus > FAKEGPU_MAX) {
		pr_err("fakegpu: gpus=%u is not 1 to %d\n", gpus, FAKEGPU_MAX);
		return -EINVAL;
	}
	if (!base || !IS_ALIGNED(base, INST_SIZE)) {
		pr_err("fakegpu: base=%#lx is no multiple of %d MiB\n", base, INST_SIZE / SZ_1M);
		return -EINVAL;
	}
	window.name = "fakegpu";
	window.start = base;
	window.end = base + (resource_size_t)gpus * FAKEGPU_SPAN - 1;
	window.flags = IORESOURCE_MEM | IORESOURCE_PREFETCH | IORESOURCE_MEM_64;
	if (region_intersects(window.start, resource_size(&window), IORESOURCE_SYSTEM_RAM,
			      IORES_DESC_NONE) != REGION_DISJOINT) {
		pr_err("fakegpu: %pR is memory of the kernel; keep it aside by memmap=\n", &window);
		return -EBUSY;
	}
	/* the memmap= region lies in the tree as "Reserved"; the window goes below it */
	rc = insert_resource(&iomem_resource, &window);
	if (rc) {
		pr_err("fakegpu: %pR is in use (%d)\n", &window, rc);
		return rc;
	}
	for (i = 0; i < gpus; i++) {
		u64 start = window.start + (u64)i * FAKEGPU_SPAN;

		make_config(&fakes[i], start);
		rc = make_registers(start);
		if (rc)
			goto release;
	}

	sysdata.domain = domain;
	sysdata.node = NUMA_NO_NODE;
	pci_add_resource(&resources, &window);
	pci_lock_rescan_remove();
	root_bus = pci_scan_root_bus(NULL, 0, &config_ops, &sysdata, &resources);
	if (root_bus) {
		pci_bus_claim_resources(root_bus);
		pci_bus_assign_resources(root_bus);
		pci_bus_add_devices(root_bus);
	}
	pci_unlock_rescan_remove();
	if (!root_bus) {
		pr_err("fakegpu: PCI domain %u cannot be added\n", domain);
		pci_free_resource_list(&resources);
		rc = -ENODEV;
		goto release;
	}
	pr_info("fakegpu: %u GPUs in PCI domain %u\n", gpus, domain);
	return 0;

release:
	remove_resource(&window);
	return rc;
}

static void __exit fakegpu_exit(void)
{
	pci_lock_rescan_remove();
	pci_stop_root_bus(root_bus);
	pci_remove_root_bus(root_bus);
	pci_unlock_rescan_remove();
	remove_resource(&window);
}

module_init(fakegpu_init);
module_exit(fakegpu_exit);
MODULE_DESCRIPTION("PCI functions that look like NVIDIA H100 GPUs, for tests of software above the driver");
MODULE_LICENSE("GPL");
