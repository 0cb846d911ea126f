import { Menu, MenuItem, MenuTrigger, Popover, Text } from 'react-aria-components';
import type { Act } from '../../actions/useVolumeAction';
import { actionsOf, obstacleTo } from '../../actions/volumeActions';
import type { Volume } from '../../api/types';
import { Button } from '../../components/Button';
import { fullNameOf } from '../../lib/names';

// VolumeMenu offers the actions on one volume.
export function VolumeMenu({ volume, act, label = '⋯' }: { volume: Volume; act: Act; label?: string }) {
  return (
    <MenuTrigger>
      <Button look={label === '⋯' ? 'quiet' : 'plain'} aria-label={`Actions on ${fullNameOf(volume)}`}>
        {label}
      </Button>
      <Popover className="popover">
        <Menu
          className="listbox"
          onAction={(key) => {
            const action = actionsOf(volume).find((a) => a.id === key);
            if (action) act(action.id, [volume]);
          }}
        >
          {actionsOf(volume).map((a) => {
            const obstacle = obstacleTo(a.id, volume);
            return (
              <MenuItem key={a.id} id={a.id} className={a.danger ? 'option danger' : 'option'} isDisabled={obstacle !== ''} textValue={a.name}>
                <Text slot="label">{a.name}</Text>
                {obstacle !== '' && (
                  <Text slot="description" className="small obstacle">
                    {obstacle}
                  </Text>
                )}
              </MenuItem>
            );
          })}
        </Menu>
      </Popover>
    </MenuTrigger>
  );
}
