import { useState } from 'react';
import { Menu, MenuItem, MenuTrigger, Popover } from 'react-aria-components';
import type { Volume } from '../../api/types';
import { Button } from '../../components/Button';
import { VolumeActionDialog } from '../../actions/VolumeActionDialog';
import { actionsOf, type VolumeAction } from '../../actions/volumeActions';

// VolumeMenu offers what can be done with one volume.
export function VolumeMenu({ volume, label = '⋯' }: { volume: Volume; label?: string }) {
  const [open, setOpen] = useState<VolumeAction | null>(null);
  return (
    <>
      <MenuTrigger>
        <Button look={label === '⋯' ? 'quiet' : 'plain'} aria-label={`Actions on ${volume.name}`}>
          {label}
        </Button>
        <Popover className="popover">
          <Menu className="listbox" onAction={(key) => setOpen(actionsOf(volume).find((a) => a.id === key)?.id ?? null)}>
            {actionsOf(volume).map((a) => (
              <MenuItem key={a.id} id={a.id} className={a.danger ? 'option danger' : 'option'}>
                {a.name}
              </MenuItem>
            ))}
          </Menu>
        </Popover>
      </MenuTrigger>
      {open !== null && <VolumeActionDialog action={open} volumes={[volume]} onClose={() => setOpen(null)} />}
    </>
  );
}
